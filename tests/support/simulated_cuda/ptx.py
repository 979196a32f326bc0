"""Translation of PTX, as NVRTC writes it for a GPU, into C: what a GPU computes, on a CPU.

Each kernel becomes a function of its parameters, the thread and the block. A register is a variable
of its bank's type; an instruction reads and writes it as its own type, bit by bit where the two
differ. Local memory is an array of the function, filled with rubbish. Shared memory is that of the
host's thread, on which all threads of a block run one after another; barriers are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_SPECIAL = {
    **{"%tid.x": "thread", "%ctaid.x": "block", "%nctaid.x": "n_blocks", "%ntid.x": "BLOCK"},
    **{f"%{name}.{axis}": "0u" for name in ("tid", "ctaid") for axis in "yz"},
    **{f"%{name}.{axis}": "1u" for name in ("ntid", "nctaid") for axis in "yz"},
}
_COMPARISONS = {
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
    **{"lo": "<", "ls": "<=", "hi": ">", "hs": ">="},
}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_WIDE = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64", "s64": "s128", "u64": "u128"}
# Rounding to an integer, as functions of C.
_ROUNDINGS = {"rmi": "floor", "rpi": "ceil", "rzi": "trunc", "rni": "rint"}

_HEAD = """
#include <math.h>
#include <stdint.h>
#include <string.h>
typedef uint8_t u8, b8; typedef uint16_t u16, b16; typedef uint32_t u32, b32;
typedef uint64_t u64, b64; typedef int8_t s8; typedef int16_t s16; typedef int32_t s32;
typedef int64_t s64; typedef float f32; typedef double f64; typedef int pred;
typedef unsigned __int128 u128; typedef __int128 s128;
static inline f32 f32_of(u32 x) { f32 y; memcpy(&y, &x, 4); return y; }
static inline u32 u32_of(f32 x) { u32 y; memcpy(&y, &x, 4); return y; }
static inline f64 f64_of(u64 x) { f64 y; memcpy(&y, &x, 8); return y; }
static inline u64 u64_of(f64 x) { u64 y; memcpy(&y, &x, 8); return y; }
static inline f32 f32_of_half(u16 x) {
    const int exponent = x >> 10 & 31, digits = x & 1023;
    f32 y = exponent ? ldexpf(1024 + digits, exponent - 25) : ldexpf(digits, -24);
    if (exponent == 31) y = digits ? NAN : INFINITY;
    return x >> 15 ? -y : y;
}
static inline f32 rounded_f32(f32 x) { __asm__("" : "+m"(x)); return x; }
static inline f64 rounded_f64(f64 x) { __asm__("" : "+m"(x)); return x; }
/* A GPU saturates, and makes 0 of NaN. */
#define TO_INTEGER(T, LOWEST, HIGHEST) static inline T to_##T(f64 x) { \\
  return x != x ? 0 : x <= (f64)(LOWEST) ? (LOWEST) : x >= (f64)(HIGHEST) ? (HIGHEST) : (T)x; }
TO_INTEGER(s32, INT32_MIN, INT32_MAX) TO_INTEGER(u32, 0, UINT32_MAX)
TO_INTEGER(s64, INT64_MIN, INT64_MAX) TO_INTEGER(u64, 0, UINT64_MAX)
TO_INTEGER(u16, 0, UINT16_MAX) TO_INTEGER(s16, INT16_MIN, INT16_MAX)
"""


class Translation(NamedTuple):
    """C source, and the kernels in it: functions of (parameters, threads) by this name."""

    source: str
    kernels: tuple[str, ...]


# What translations count of all threads, by their place in the array `counts`. A warp of 32 threads
# issues at least as many instructions as its busiest thread executes: those count 32 times.
COUNTS = ("instructions", "loads", "loaded_bytes", "warp_instructions", "warp_loads", "threads")
# The most instructions of a thread; and what warps issue if their threads stay together wherever
# they do the same: each block of instructions as often as the thread that is most often there.
COUNTS += ("busiest", "issued")
_COUNTING = """
static _Thread_local u64 counts[8], warp_most[2];
static _Thread_local u32 visits[N_BLOCKS], most_visits[N_BLOCKS];
static const u32 lengths[N_BLOCKS] = {LENGTHS};
void take_counts(u64* into) {
  memcpy(into, counts, sizeof counts);
  memset(counts, 0, sizeof counts);
}
static void count_thread(const u64* before, u32 thread, int last) {
  u64 own[2] = {counts[0] - before[0], counts[1] - before[1]};
  for (int k = 0; k < 2; ++k) if (own[k] > warp_most[k]) warp_most[k] = own[k];
  counts[5]++;
  if (own[0] > counts[6]) counts[6] = own[0];
  for (int k = 0; k < N_BLOCKS; ++k) {
    if (visits[k] > most_visits[k]) most_visits[k] = visits[k];
    visits[k] = 0;
    if (thread % 32 == 31 || last) {
      counts[7] += (u64)most_visits[k] * lengths[k];
      most_visits[k] = 0;
    }
  }
  if (thread % 32 == 31 || last)
    for (int k = 0; k < 2; ++k) { counts[3 + k] += 32 * warp_most[k]; warp_most[k] = 0; }
}
"""


def translate(ptx: str, block: int, counted: bool = False) -> Translation:
    """Translates a module that is to run in blocks of a number of threads.

    Args:
        ptx: of the module.
        block: threads of a block.
        counted: whether what threads do is counted, see `COUNTS`.

    Raises:
        ValueError: an instruction that is not known here.
    """
    text = re.sub(r"//.*", "", ptx.replace("\0", ""))
    bodies = re.findall(
        r"\.visible \.entry (\w+)\(\s*(.*?)\)\s*(?:\.\w+ [^\n{]*\n)*\s*\{(.*?)\n\}", text, re.DOTALL
    )
    functions = re.findall(
        r"\.func\s+(?:\([^)]*\)\s*)?([\w$]+)\s*\(([^)]*)\)\s*\{(.*?)\n\}", text, re.DOTALL
    )
    used = set(re.findall(r"[\w$]+", " ".join(body for *_, body in (*bodies, *functions))))
    memory, symbols = _declared_memory(text, used)
    lengths: list[int] | None = [] if counted else None
    parts = [f"#define BLOCK {block}u", _HEAD, "", memory]
    parts += [f"static {_signature(name)};" for name, *_ in functions]
    parts += [
        _Body(_signature(name), args, symbols, body, lengths).c for name, args, body in functions
    ]
    before, after = "", ""
    if counted:
        before = "u64 before[2] = {counts[0], counts[1]}; "
        after = " count_thread(before, t, b * (u64)BLOCK + t + 1 >= size);"
    names = []
    for entry, parameters, body in bodies:
        name = re.sub(r"_[0-9a-f]{8}_cuda_kernel_forward$", "", entry)
        names.append(name)
        parts.append(_Body(_signature(name), parameters, symbols, body, lengths).c)
        threads = "t < BLOCK && b * (u64)BLOCK + t < size" if counted else "t < BLOCK"
        parts.append(
            f"void run_{name}(u8** P, u64 size) {{ u32 n = (u32)((size + BLOCK - 1) / BLOCK);\n"
            f"  for (u32 b = 0; b < n; ++b) for (u32 t = 0; {threads}; ++t) {{"
            f" {before}thread_{name}(P, 0, t, b, n);{after} }} }}"
        )
    if lengths is not None:
        blocks = f"#define N_BLOCKS {len(lengths)}\n#define LENGTHS {', '.join(map(str, lengths))}"
        parts[2] = f"{blocks}\n{_COUNTING}"
    return Translation("\n".join(parts), tuple(names))


def _signature(name: str) -> str:
    """Of a kernel or function: parameters, the place of its result, and the thread."""
    named = name.replace("$", "_")
    return f"void thread_{named}(u8** P, u8* result, u32 thread, u32 block, u32 n_blocks)"


def _declared_memory(text: str, used: set[str]) -> tuple[str, dict[str, str]]:
    """Declarations of shared, constant and global memory, and what names stand for in C.

    Addresses of shared memory are numbers of 32 bits: those of the array `shared`.
    """
    lines, symbols, end = [], {}, 0
    declaration = r"\.(shared|global|const) \.align (\d+) \.(\w+) ([\w$]+)"
    pattern = declaration + r"(?:\[(\d*)\])?(?: = ([^;]+))?;"
    for space, align, kind, name, size, value in re.findall(pattern, text):
        if name not in used:
            continue
        if space == "shared":
            begin = -(-end // int(align)) * int(align)
            end = begin + int(size) * _bits(kind) // 8
            symbols[name] = f"{begin}u"
            continue
        symbols[name] = f"(uintptr_t)M_{name.replace('$', '_')}"
        init = "" if not value else " = " + (value if "{" in value else f"{{{value}}}")
        array = f"M_{name.replace('$', '_')}[{size or 1}]"
        lines.append(f"static __attribute__((aligned({align}))) {kind} {array}{init};")
    lines.append(f"static _Thread_local __attribute__((aligned(64))) u8 shared[{end + 1}];")
    return "\n".join(lines), symbols


class _Body:
    """The translation of one kernel, or of a function that kernels call."""

    def __init__(
        self,
        signature: str,
        parameters: str,
        symbols: dict[str, str],
        body: str,
        lengths: list[int] | None,
    ):
        self._signature = signature
        # Of blocks of instructions, if they are counted: nothing jumps into one, or out of it.
        self._lengths = lengths
        self._begins_block = True
        self._parameters = re.findall(r"[\w$]+_param_\d+", parameters)
        self._symbols = dict(symbols)
        lines = [f"static {signature} {{"]
        # Arguments and results of calls, which follow one another, in the largest size of each.
        self._arguments: dict[str, int] = {}
        declared = re.findall(r"\.param (?:\.align \d+ )?\.\w+ (\w+)(?:\[(\d+)\])?;", body)
        for name, size in declared:
            self._arguments[name] = max(self._arguments.get(name, 8), int(size or 8))
        for name, size in self._arguments.items():
            lines.append(f"  __attribute__((aligned(16))) u8 A_{name}[{size}];")
        self._banks: dict[str, str] = {}
        for kind, bank, count in re.findall(r"\.reg \.(\w+)\s+%([A-Za-z]+)(?:<(\d+)>)?;", body):
            if bank in self._banks:  # declared again, in a block of its own
                continue
            self._banks[bank] = _unsigned(kind)
            registers = [f"{bank}{i}" for i in range(int(count))] if count else [bank]
            lines.append(f"  {self._banks[bank]} {', '.join(f'R_{r} = 0' for r in registers)};")
        for align, depot, size in re.findall(r"\.local \.align (\d+) \.b8\s+(\w+)\[(\d+)\];", body):
            self._symbols[depot] = "(uintptr_t)local"
            lines.append(f"  __attribute__((aligned({align}))) u8 local[{size}];")
            lines.append("  memset(local, 0xA5, sizeof local);")
        lines += [*map(self._statement, re.split(r";|(?<=:)\s*\n", body)), "}"]
        self.c = "\n".join(line for line in lines if line)

    def _statement(self, text: str) -> str:
        """One instruction with its labels and its predicate."""
        labels = ""
        text = text.strip().lstrip("{}").strip()
        while found := re.match(r"([\w$]+):\s*(.*)", text, re.DOTALL):
            labels += f" {_label(found[1])}: ;"
            text = found[2].strip()
        self._begins_block |= bool(labels)
        if not text or text.startswith("."):
            return labels
        guard = ""
        if found := re.match(r"@(!?)%(p\d+)\s+(.*)", text, re.DOTALL):
            guard, text = f"if ({found[1]}R_{found[2]}) ", found[3]
        name, _, rest = text.partition(" ")
        name, rest = name.split("\t")[0], text[len(name.split("\t")[0]) :]
        operands = [o.strip() for o in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", rest)]
        base, *modifiers = name.split(".")
        try:
            code = getattr(self, f"_{base}_")(modifiers, operands)
        except (AttributeError, KeyError, IndexError) as error:
            raise ValueError(f"PTX that is not known, in {self._signature}: {text}") from error
        if self._lengths is None:
            return f"{labels}  {guard}{{ {code} }}"
        visit = ""
        if self._begins_block:
            visit = f"visits[{len(self._lengths)}]++; "
            self._lengths.append(0)
        self._lengths[-1] += 1
        self._begins_block = base in ("bra", "ret", "exit")
        return f"{labels}  {visit}{guard}{{ {self._counting(base, modifiers, operands)}{code} }}"

    @staticmethod
    def _counting(base: str, modifiers: list[str], operands: list[str]) -> str:
        """Counts an instruction, and what it loads from global memory."""
        is_load = base in ("ld", "ldu") and not {"local", "param", "shared", "const"} & {*modifiers}
        if not is_load:
            return "counts[0]++; "
        n_bytes = len(_group(operands[0])) * _bits(modifiers[-1]) // 8
        return f"counts[0]++; counts[1]++; counts[2] += {n_bytes}; "

    # -- operands ---------------------------------------------------------------------------------

    def _read(self, operand: str, kind: str) -> str:
        """The value of an operand as a type of PTX."""
        if operand in _SPECIAL:
            return f"({kind})({_SPECIAL[operand]})"
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", operand):
            return _converted(f"0x{operand[2:]}u", "u32", kind)
        if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", operand):
            return _converted(f"0x{operand[2:]}ull", "u64", kind)
        if re.fullmatch(r"-?(\d+|0[xX][0-9a-fA-F]+)U?", operand):
            number = operand.rstrip("U")
            return f"({kind})({number}ll)" if kind != "pred" else number
        if operand.startswith("!"):
            return f"!{self._read(operand[1:], kind)}"
        if operand.startswith("%"):
            return _converted(f"R_{operand[1:]}", self._bank(operand), kind)
        if operand in self._parameters:
            return f"({kind})(uintptr_t)P[{self._parameters.index(operand)}]"
        return f"({kind}){self._symbols[operand]}"

    def _write(self, operand: str, kind: str, value: str) -> str:
        """An assignment of a value of a type of PTX."""
        return f"R_{operand[1:]} = {_converted(f'({value})', kind, self._bank(operand))};"

    def _bank(self, register: str) -> str:
        name = re.match(r"%([A-Za-z]+)", register)
        if name is None:
            raise KeyError(register)
        return self._banks[name[1]]

    def _address(self, operand: str, modifiers: list[str]) -> str:
        found = re.fullmatch(r"\[([%\w$.]+)(?:\+(-?\d+))?\]", operand)
        if found is None:
            raise KeyError(operand)
        if found[1] in self._arguments:
            return f"(A_{found[1]} + {found[2] or 0})"
        if found[1].startswith("func_retval"):
            return f"(result + {found[2] or 0})"
        if "shared" in modifiers:
            return f"(shared + (u32)({self._read(found[1], 'u32')} + ({found[2] or 0})))"
        return f"((u8*)(uintptr_t)({self._read(found[1], 'u64')}) + ({found[2] or 0}))"

    def _reader(self, kind: str, operands: list[str]) -> Callable[[int], str]:
        return lambda index: f"({self._read(operands[index], kind)})"

    # -- memory and moves -------------------------------------------------------------------------

    def _ld_(self, modifiers: list[str], operands: list[str]) -> str:
        kind, place = modifiers[-1], self._address(operands[1], modifiers)
        loads = (
            self._write(target, kind, f"(({kind}*){place})[{i}]")
            for i, target in enumerate(_group(operands[0]))
        )
        return " ".join(loads)

    _ldu_ = _ld_

    def _st_(self, modifiers: list[str], operands: list[str]) -> str:
        kind, place = modifiers[-1], self._address(operands[0], modifiers)
        return " ".join(
            f"(({kind}*){place})[{i}] = {self._read(source, kind)};"
            for i, source in enumerate(_group(operands[1]))
        )

    def _mov_(self, modifiers: list[str], operands: list[str]) -> str:
        kind, (target, source) = modifiers[-1], operands
        if source.startswith("{"):  # packs
            low, high = (self._read(part, f"u{_bits(kind) // 2}") for part in _group(source))
            whole = f"u{_bits(kind)}"
            return self._write(
                target, whole, f"({whole})({low}) | (({whole})({high}) << {_bits(kind) // 2})"
            )
        if target.startswith("{"):  # unpacks
            half, whole = f"u{_bits(kind) // 2}", f"u{_bits(kind)}"
            low, high = _group(target)
            value = self._read(source, whole)
            shifted = f"({half})(q >> {_bits(kind) // 2})"
            return (
                f"{whole} q = {value}; {self._write(low, half, f'({half})q')} "
                f"{self._write(high, half, shifted)}"
            )
        return self._write(target, kind, self._read(source, kind))

    def _cvta_(self, modifiers: list[str], operands: list[str]) -> str:
        value = self._read(operands[1], "u64")
        if "shared" in modifiers:
            value = f"(uintptr_t)(shared + {value})"
            if "to" in modifiers:
                raise KeyError("to")
        return self._write(operands[0], "u64", value)

    # -- control ----------------------------------------------------------------------------------

    def _bra_(self, modifiers: list[str], operands: list[str]) -> str:
        return f"goto {_label(operands[0])};"

    def _call_(self, modifiers: list[str], operands: list[str]) -> str:
        pattern = r"(?:\(\s*(\w+)\s*\)\s*,\s*)?([\w$]+)\s*(?:,\s*\(([^)]*)\))?\s*"
        found = re.fullmatch(pattern, ", ".join(operands))
        if found is None:
            raise KeyError("call")
        given = ", ".join(f"A_{name}" for name in re.findall(r"\w+", found[3] or ""))
        result = f"A_{found[1]}" if found[1] else "0"
        function = f"thread_{found[2].replace('$', '_')}"
        return f"u8* Q[] = {{ {given or 0} }}; {function}(Q, {result}, thread, block, n_blocks);"

    def _ret_(self, modifiers: list[str], operands: list[str]) -> str:
        return "return;"

    _exit_ = _ret_

    def _trap_(self, modifiers: list[str], operands: list[str]) -> str:
        return "__builtin_trap();"

    # -- arithmetic -------------------------------------------------------------------------------

    def _binary(self, name: str, modifiers: list[str], operands: list[str]) -> str:
        kind = modifiers[-1]
        read = self._reader(_unsigned(kind), operands)
        value = f"{read(1)} {_INFIX[name]} {read(2)}"
        return self._write(operands[0], _unsigned(kind), value)

    def _add_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._binary("add", modifiers, operands)

    def _sub_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._binary("sub", modifiers, operands)

    def _and_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._binary("and", modifiers, operands)

    def _or_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._binary("or", modifiers, operands)

    def _xor_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._binary("xor", modifiers, operands)

    def _mul_(self, modifiers: list[str], operands: list[str]) -> str:
        kind = modifiers[-1]
        if "rn" in modifiers:  # which nothing may fuse with a sum
            read = self._reader(kind, operands)
            return self._write(operands[0], kind, f"rounded_{kind}({read(1)} * {read(2)})")
        if kind in ("f32", "f64") or "lo" in modifiers:
            return self._binary("mul", modifiers, operands)
        read, wide = self._reader(kind, operands), _WIDE[kind]
        value = f"({wide}){read(1)} * ({wide}){read(2)}"
        if "wide" in modifiers:
            return self._write(operands[0], wide, value)
        return self._write(operands[0], kind, f"({kind})(({value}) >> {_bits(kind)})")

    def _mad_(self, modifiers: list[str], operands: list[str]) -> str:
        kind = modifiers[-1]
        if "wide" in modifiers:
            wide, read = _WIDE[kind], self._reader(kind, operands)
            value = f"({wide}){read(1)} * ({wide}){read(2)} + {self._read(operands[3], wide)}"
            return self._write(operands[0], wide, value)
        if "lo" not in modifiers:
            raise KeyError("mad")
        read = self._reader(_unsigned(kind), operands)
        return self._write(operands[0], _unsigned(kind), f"{read(1)} * {read(2)} + {read(3)}")

    def _fma_(self, modifiers: list[str], operands: list[str]) -> str:
        kind, read = modifiers[-1], self._reader(modifiers[-1], operands)
        value = f"__builtin_fma{_suffix(kind)}({read(1)}, {read(2)}, {read(3)})"
        return self._write(operands[0], kind, value)

    def _div_(self, modifiers: list[str], operands: list[str], symbol: str = "/") -> str:
        kind, read = modifiers[-1], self._reader(modifiers[-1], operands)
        value = f"{read(1)} {symbol} {read(2)}"
        if kind not in ("f32", "f64"):  # a GPU does not trap
            value = f"{read(2)} ? {value} : ({kind})-1"
        return self._write(operands[0], kind, value)

    def _rem_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._div_(modifiers, operands, "%")

    def _extreme(self, name: str, modifiers: list[str], operands: list[str]) -> str:
        kind, read = modifiers[-1], self._reader(modifiers[-1], operands)
        if kind in ("f32", "f64"):  # the number, of a number and NaN
            value = f"f{name}{_suffix(kind)}({read(1)}, {read(2)})"
        else:
            symbol = "<" if name == "min" else ">"
            value = f"{read(1)} {symbol} {read(2)} ? {read(1)} : {read(2)}"
        return self._write(operands[0], kind, value)

    def _min_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._extreme("min", modifiers, operands)

    def _max_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._extreme("max", modifiers, operands)

    def _neg_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._write(
            operands[0], modifiers[-1], f"-{self._reader(modifiers[-1], operands)(1)}"
        )

    def _abs_(self, modifiers: list[str], operands: list[str]) -> str:
        kind, read = modifiers[-1], self._reader(modifiers[-1], operands)
        is_float = kind in ("f32", "f64")
        value = (
            f"fabs{_suffix(kind)}({read(1)})"
            if is_float
            else f"{read(1)} < 0 ? -{read(1)} : {read(1)}"
        )
        return self._write(operands[0], kind, value)

    def _not_(self, modifiers: list[str], operands: list[str]) -> str:
        kind = modifiers[-1]
        symbol = "!" if kind == "pred" else "~"
        return self._write(operands[0], kind, f"{symbol}{self._reader(kind, operands)(1)}")

    def _function(self, name: str, modifiers: list[str], operands: list[str]) -> str:
        kind = modifiers[-1]
        call = f"{name}{_suffix(kind)}({self._read(operands[1], kind)})"
        return self._write(operands[0], kind, call)

    def _sqrt_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._function("sqrt", modifiers, operands)

    def _sin_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._function("sin", modifiers, operands)

    def _cos_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._function("cos", modifiers, operands)

    def _ex2_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._function("exp2", modifiers, operands)

    def _lg2_(self, modifiers: list[str], operands: list[str]) -> str:
        return self._function("log2", modifiers, operands)

    def _rcp_(self, modifiers: list[str], operands: list[str]) -> str:
        kind = modifiers[-1]
        return self._write(operands[0], kind, f"({kind})1 / {self._reader(kind, operands)(1)}")

    def _rsqrt_(self, modifiers: list[str], operands: list[str]) -> str:
        kind = modifiers[-1]
        root = f"sqrt{_suffix(kind)}({self._read(operands[1], kind)})"
        return self._write(operands[0], kind, f"({kind})1 / {root}")

    def _copysign_(self, modifiers: list[str], operands: list[str]) -> str:
        kind, read = modifiers[-1], self._reader(modifiers[-1], operands)
        return self._write(operands[0], kind, f"copysign{_suffix(kind)}({read(2)}, {read(1)})")

    # -- bits -------------------------------------------------------------------------------------

    def _shl_(self, modifiers: list[str], operands: list[str]) -> str:
        kind = _unsigned(modifiers[-1])
        value, by = self._read(operands[1], kind), self._read(operands[2], "u32")
        shifted = f"({by}) >= {_bits(kind)} ? 0 : ({kind})(({value}) << ({by}))"
        return self._write(operands[0], kind, shifted)

    def _shr_(self, modifiers: list[str], operands: list[str]) -> str:
        kind = modifiers[-1] if modifiers[-1][0] == "s" else _unsigned(modifiers[-1])
        value, by = self._read(operands[1], kind), self._read(operands[2], "u32")
        most = f"({kind})(({value}) >> {_bits(kind) - 1})" if kind[0] == "s" else "0"
        shifted = f"({by}) >= {_bits(kind)} ? {most} : ({kind})(({value}) >> ({by}))"
        return self._write(operands[0], kind, shifted)

    def _shf_(self, modifiers: list[str], operands: list[str]) -> str:
        low, high, by = (self._read(operand, "u32") for operand in operands[1:])
        whole = f"(((u64)({high}) << 32) | ({low}))"
        bits = f"(({by}) & 31)" if "wrap" in modifiers else f"(({by}) > 32 ? 32 : ({by}))"
        value = (
            f"(u32)(({whole} << {bits}) >> 32)"
            if modifiers[0] == "l"
            else f"(u32)({whole} >> {bits})"
        )
        return self._write(operands[0], "u32", value)

    def _bfi_(self, modifiers: list[str], operands: list[str]) -> str:
        kind = _unsigned(modifiers[-1])
        field, into = (self._read(operand, kind) for operand in operands[1:3])
        begin, count = (self._read(operand, "u32") for operand in operands[3:5])
        mask = (
            f"(({count}) >= {_bits(kind)} ? ({kind})-1 : (({kind})1 << ({count})) - 1) << ({begin})"
        )
        value = f"(({into}) & ~m) | ((({field}) << ({begin})) & m)"
        return f"{kind} m = {mask}; {self._write(operands[0], kind, value)}"

    def _bfe_(self, modifiers: list[str], operands: list[str]) -> str:
        kind = modifiers[-1]
        if kind[0] != "u":
            raise KeyError(kind)
        begin, count = (self._read(operand, "u32") for operand in operands[2:4])
        mask = f"(({count}) >= {_bits(kind)} ? ({kind})-1 : (({kind})1 << ({count})) - 1)"
        return self._write(
            operands[0], kind, f"({self._read(operands[1], kind)} >> ({begin})) & {mask}"
        )

    def _clz_(self, modifiers: list[str], operands: list[str]) -> str:
        value, suffix = (
            self._read(operands[1], f"u{_bits(modifiers[-1])}"),
            "ll" if "64" in modifiers[-1] else "",
        )
        return self._write(
            operands[0],
            "u32",
            f"({value}) ? __builtin_clz{suffix}({value}) : {_bits(modifiers[-1])}",
        )

    def _popc_(self, modifiers: list[str], operands: list[str]) -> str:
        value = self._read(operands[1], f"u{_bits(modifiers[-1])}")
        return self._write(operands[0], "u32", f"__builtin_popcountll({value})")

    # -- choices and conversions ------------------------------------------------------------------

    def _setp_(self, modifiers: list[str], operands: list[str]) -> str:
        how, kind = modifiers[0], modifiers[-1]
        read = self._reader(kind, operands)
        one, other = read(1), read(2)
        if kind not in ("f32", "f64"):
            value = f"{one} {_COMPARISONS[how]} {other}"
        elif how in ("nan", "num"):
            value = f"{'!' if how == 'num' else ''}__builtin_isunordered({one}, {other})"
        elif how in _COMPARISONS:  # false with NaN, that they are not equal too
            value = f"!__builtin_isunordered({one}, {other}) && {one} {_COMPARISONS[how]} {other}"
        else:
            symbol = _COMPARISONS[how.removesuffix("u")]
            value = f"__builtin_isunordered({one}, {other}) || {one} {symbol} {other}"
        if len(modifiers) > 2 and modifiers[1] in ("and", "or"):
            value = f"({value}) {_INFIX[modifiers[1]]} ({self._read(operands[3], 'pred')})"
        target, _, opposite = operands[0].partition("|")
        code = self._write(target, "pred", value)
        return code + (f" R_{opposite[1:]} = !R_{target[1:]};" if opposite else "")

    def _selp_(self, modifiers: list[str], operands: list[str]) -> str:
        kind, read = modifiers[-1], self._reader(modifiers[-1], operands)
        chosen = f"{self._read(operands[3], 'pred')} ? {read(1)} : {read(2)}"
        return self._write(operands[0], kind, chosen)

    def _cvt_(self, modifiers: list[str], operands: list[str]) -> str:
        to, of = modifiers[-2:]
        if of == "f16" and to == "f32":  # of half precision numbers are read, and no more
            value = f"f32_of_half({self._read(operands[1], 'u16')})"
            return self._write(operands[0], to, value)
        value = f"({self._read(operands[1], of)})"
        if of in ("f32", "f64"):
            for rounding, function in _ROUNDINGS.items():
                if rounding in modifiers:
                    value = f"{function}{_suffix(of)}{value}"
            value = f"({to}){value}" if to in ("f32", "f64") else f"to_{to}({value})"
        else:
            value = f"({to}){value}"
        if "sat" in modifiers:  # 0 of NaN
            value = f"fmin{_suffix(to)}(fmax{_suffix(to)}({value}, 0), 1)"
        return self._write(operands[0], to, value)

    def _testp_(self, modifiers: list[str], operands: list[str]) -> str:
        test = {"finite": "isfinite", "infinite": "isinf", "notanumber": "isnan"}[modifiers[0]]
        return self._write(operands[0], "pred", f"{test}({self._read(operands[1], modifiers[-1])})")

    # -- threads, which run one after another -----------------------------------------------------

    def _atom_(self, modifiers: list[str], operands: list[str]) -> str:
        kind, place = modifiers[-1], self._address(operands[1], modifiers)
        read = self._reader(kind, operands)
        combined = {
            "add": f"old + {read(2)}",
            "or": f"old | {read(2)}",
            "exch": read(2),
            "min": f"old < {read(2)} ? old : {read(2)}",
            "max": f"old > {read(2)} ? old : {read(2)}",
        }
        (name,) = {*modifiers} & {*combined}
        return (
            f"{kind}* at = ({kind}*){place}; {kind} old = *at; *at = {combined[name]}; "
            f"{self._write(operands[0], kind, 'old')}"
        )

    def _red_(self, modifiers: list[str], operands: list[str]) -> str:
        kind, place = modifiers[-1], self._address(operands[0], modifiers)
        value = self._read(operands[1], kind)
        combined = {"add": f"*at + ({value})", "or": f"*at | ({value})"}
        (name,) = {*modifiers} & {*combined}
        return f"{kind}* at = ({kind}*){place}; *at = {combined[name]};"


def _converted(value: str, of: str, to: str) -> str:
    """A value with the same bits as another type; wider registers keep the lower bits."""
    if of == to or "pred" in (of, to):
        return value
    if of in ("f32", "f64"):
        value, of = f"u{of[1:]}_of({value})", f"u{of[1:]}"
    if to in ("f32", "f64"):
        return f"f{to[1:]}_of((u{to[1:]})({value}))"
    return f"({to})({value})"


def _unsigned(kind: str) -> str:
    """The type in which integers wrap; floating-point numbers stay what they are."""
    return kind if kind in ("f32", "f64", "pred") else f"u{kind[1:]}"


def _bits(kind: str) -> int:
    return int(kind[1:])


def _suffix(kind: str) -> str:
    return "f" if kind == "f32" else ""


def _group(operand: str) -> list[str]:
    """The registers of a vector, or the only one."""
    return [part.strip() for part in operand.strip("{}").split(",")]


def _label(name: str) -> str:
    return "L_" + name.replace("$", "_")
