"""What tables of damaged, hostile and odd files share."""

REST = [0, 0, 0, 1, 0, 0, 0]
Case = tuple[str, bytes, str]  # name of the file, content, a regular expression for the message


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    """The data with the first place of some bytes changed; they must be there."""
    assert old in data
    return data.replace(old, new, 1)


# Entities of which each holds the last one ten times.
LAUGHS = "".join(
    f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' if i else '<!ENTITY l0 "lol">' for i in range(12)
)
