"""The worker process: what parsers do there ends neither this process nor the next file."""

import mmap
import os
import signal

import pytest

from warp_collision.formats import worker
from warp_collision.formats.worker import allow, run_limited


def crash(number: int) -> None:
    os.kill(os.getpid(), number)


def loop() -> None:
    while True:
        pass


def take(n_bytes: int) -> int:
    """Asks for memory, without using it."""
    try:
        with mmap.mmap(-1, n_bytes) as memory:
            return len(memory)
    except OSError as error:
        raise MemoryError from error


def take_for_file(n_bytes: int, size: int) -> int:
    allow(size)
    return take(n_bytes)


def complain(kind: type[Exception], *arguments: object) -> None:
    raise kind(*arguments)


def run(function, *arguments):
    return run_limited(function, *arguments, library="a parser", imports=("numpy",))


@pytest.mark.parametrize(
    ("function", "arguments", "ending"),
    [
        pytest.param(os.abort, (), "SIGABRT", marks=pytest.mark.slow),
        (crash, (signal.SIGSEGV,), "SIGSEGV"),
        pytest.param(os._exit, (3,), "status 3", marks=pytest.mark.slow),
        pytest.param(loop, (), "SIGXCPU", marks=pytest.mark.slow),
        (take, (2 << 30,), "MemoryError"),
    ],
)
def test_a_parser_that_is_ended_is_an_error_and_the_next_file_is_read(function, arguments, ending):
    rule = r"a parser must get through it in 3 s and 1024 MiB, .* got"
    with pytest.raises(ValueError, match=f"{rule} {ending}$"):
        run(function, *arguments)
    assert run(take, 1000) == 1000


def test_one_process_reads_many_files():
    assert len({run(os.getpid) for _ in range(3)} - {os.getpid()}) == 1


def test_limits_grow_with_files_and_are_those_of_one_call():
    assert run(take_for_file, 3 << 29, 20 << 20) == 3 << 29
    with pytest.raises(ValueError, match="MemoryError"):
        run(take, 3 << 29)
    allow(1 << 40)  # of no meaning in this process


def test_errors_of_parsers_are_one_line():
    with pytest.raises(ValueError, match=r"^it must be right$"):
        run(complain, ValueError, "it must be right")
    with pytest.raises(ValueError, match=r"^LookupError: a$"):
        run(complain, LookupError, "a")
    with pytest.raises(ValueError, match=r"^two lines$"):
        run(complain, RuntimeError, "two\nlines")


def test_a_forked_process_has_a_worker_of_its_own():
    mine = run(os.getpid)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(run(os.getpid)).encode())
        worker._worker.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert int(os.read(read, 20)) != mine
    os.close(read)
    os.close(write)
    assert run(os.getpid) == mine
    assert os.path.isdir(run(os.getcwd)), (
        "the folder of this process's worker went with the other's"
    )


def test_without_an_interpreter_to_start(monkeypatch):
    monkeypatch.setattr("sys.executable", "")
    assert run(os.getpid) == os.getpid()
