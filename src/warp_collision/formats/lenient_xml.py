"""XML that other readers take, though a prefix is undeclared or the declaration is late."""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat
from xml.parsers.expat import errors

_DECLARATION = re.compile(rb"<\?xml\s[^>]*\?>\s*")
_CODES = expat.errors.codes
_UNBOUND = _CODES[errors.XML_ERROR_UNBOUND_PREFIX]
_LATE = _CODES[errors.XML_ERROR_MISPLACED_XML_PI]


def parse_lenient(content: bytes) -> tuple[Element, list[str]]:
    """The root element of XML, and the names whose prefix is not declared.

    These names keep their prefix, as "drake:acceleration", so that no reader takes them for others.

    Raises:
        ElementTree.ParseError: the XML breaks another rule.
    """
    try:
        return ElementTree.fromstring(content), []
    except ElementTree.ParseError as error:
        if error.code == _LATE:
            found = _DECLARATION.search(content)
            if found is not None and found.start() > 0:
                before, after = content[: found.start()], content[found.end() :]
                return parse_lenient(found[0] + before.lstrip() + after)
        if error.code != _UNBOUND:
            raise
    return _without_namespaces(content)


def _without_namespaces(content: bytes) -> tuple[Element, list[str]]:
    """The root element with names as they are written, and those of undeclared prefixes.

    Expat is the parser of `ElementTree.fromstring` too, with the same bounds of entities.
    """
    builder, names = ElementTree.TreeBuilder(), set[str]()

    def start(tag: str, attributes: dict[str, str]) -> None:
        names.update(name for name in (tag, *attributes) if ":" in name)
        builder.start(tag, attributes)

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ElementTree.ParseError(str(error)) from error
    declared = {"xml", "xmlns"} | {name[6:] for name in names if name.startswith("xmlns:")}
    return builder.close(), sorted(name for name in names if name.split(":")[0] not in declared)
