"""The table of machine instructions that the emitter uses, by Intel's names.

A row is `(prefix, map, opcode, W in EVEX, forms, imm8, reach)`: prefix and map as the encodings
count them (0 none, 1 66, 2 F3, 3 F2; 1 0F, 2 0F38, 3 0F3A). Intel 64 and IA-32 Architectures
Software Developer's Manual, volume 2.
"""

from __future__ import annotations

# Which operands an instruction has: reg, second source (vvvv) and reg/memory; "store" has the
# reg/memory as its destination; "shift" has the count as imm8 and a digit in place of reg.
BINARY, UNARY, STORE, SHIFT, MASK = "binary", "unary", "store", "shift", "mask"

Row = tuple[int, int, int, int, str, bool, int]

# What a memory operand is as a share of the vector, which scales short displacements of EVEX: 1
# the whole, 0 something else (such an operand gets a long displacement).
_WHOLE = 1

TABLE: dict[str, Row] = {}


def _add(
    names: str,
    prefix: int,
    opmap: int,
    opcode: int,
    w: int,
    form: str,
    imm: bool = False,
    reach: int = _WHOLE,
) -> None:
    for name in names.split():
        TABLE[name] = (prefix, opmap, opcode, w, form, imm, reach)


def _pair(name: str, opcode: int) -> None:
    """Add the instruction of float32 and that of float64."""
    _add(name + "ps", 0, 1, opcode, 0, BINARY)
    _add(name + "pd", 1, 1, opcode, 1, BINARY)


for _name, _opcode in (
    ("vadd", 0x58),
    ("vmul", 0x59),
    ("vsub", 0x5C),
    ("vmin", 0x5D),
    ("vdiv", 0x5E),
    ("vmax", 0x5F),
):
    _pair(_name, _opcode)
_add("vsqrtps", 0, 1, 0x51, 0, UNARY)
_add("vsqrtpd", 1, 1, 0x51, 1, UNARY)
_add("vaddsd", 3, 1, 0x58, 1, BINARY, reach=0)
_add("vmulsd", 3, 1, 0x59, 1, BINARY, reach=0)
_add("vdivsd", 3, 1, 0x5E, 1, BINARY, reach=0)
_add("vcvtss2sd", 2, 1, 0x5A, 0, BINARY, reach=0)
_add("vcvtsd2ss", 3, 1, 0x5A, 1, BINARY, reach=0)

for _name, _opcode in (
    ("vfmadd132", 0x98),
    ("vfmadd213", 0xA8),
    ("vfmadd231", 0xB8),
    ("vfnmadd132", 0x9C),
    ("vfnmadd213", 0xAC),
    ("vfnmadd231", 0xBC),
):
    _add(_name + "ps", 1, 2, _opcode, 0, BINARY)
    _add(_name + "pd", 1, 2, _opcode, 1, BINARY)

# Integers; logic of all types, which AVX-512 has by element size.
_add("vpaddd", 1, 1, 0xFE, 0, BINARY)
_add("vpaddq", 1, 1, 0xD4, 1, BINARY)
_add("vpsubd", 1, 1, 0xFA, 0, BINARY)
_add("vpsubq", 1, 1, 0xFB, 1, BINARY)
_add("vpmulld", 1, 2, 0x40, 0, BINARY)
_add("vpmullq", 1, 2, 0x40, 1, BINARY)
_add("vpminsd", 1, 2, 0x39, 0, BINARY)
_add("vpminsq", 1, 2, 0x39, 1, BINARY)
_add("vpmaxsd", 1, 2, 0x3D, 0, BINARY)
_add("vpmaxsq", 1, 2, 0x3D, 1, BINARY)
_add("vpabsb", 1, 2, 0x1C, 0, UNARY)
_add("vpabsd", 1, 2, 0x1E, 0, UNARY)
_add("vpabsq", 1, 2, 0x1F, 1, UNARY)
_add("vpand vpandd", 1, 1, 0xDB, 0, BINARY)
_add("vpandq", 1, 1, 0xDB, 1, BINARY)
_add("vpandn vpandnd", 1, 1, 0xDF, 0, BINARY)
_add("vpandnq", 1, 1, 0xDF, 1, BINARY)
_add("vpor vpord", 1, 1, 0xEB, 0, BINARY)
_add("vporq", 1, 1, 0xEB, 1, BINARY)
_add("vpxor vpxord", 1, 1, 0xEF, 0, BINARY)
_add("vpxorq", 1, 1, 0xEF, 1, BINARY)
_add("vpsllvd", 1, 2, 0x47, 0, BINARY)
_add("vpsllvq", 1, 2, 0x47, 1, BINARY)
_add("vpsrlvd", 1, 2, 0x45, 0, BINARY)
_add("vpsrlvq", 1, 2, 0x45, 1, BINARY)
_add("vpsravd", 1, 2, 0x46, 0, BINARY)
_add("vpsravq", 1, 2, 0x46, 1, BINARY)

# Shifts by imm8: the digit is in bits 8 and up of the opcode.
_add("vpslld", 1, 1, 0x672, 0, SHIFT, imm=True)
_add("vpsrld", 1, 1, 0x272, 0, SHIFT, imm=True)
_add("vpsrad", 1, 1, 0x472, 0, SHIFT, imm=True)
_add("vpsllq", 1, 1, 0x673, 1, SHIFT, imm=True)
_add("vpsrlq", 1, 1, 0x273, 1, SHIFT, imm=True)
_add("vpsraq", 1, 1, 0x472, 1, SHIFT, imm=True)

# Comparisons: into a vector (VEX) or into a mask register (EVEX, "to k").
_add("vcmpps", 0, 1, 0xC2, 0, BINARY, imm=True)
_add("vcmppd", 1, 1, 0xC2, 1, BINARY, imm=True)
_add("vpcmpeqd", 1, 1, 0x76, 0, BINARY)
_add("vpcmpgtd", 1, 1, 0x66, 0, BINARY)
_add("vpcmpeqq", 1, 2, 0x29, 1, BINARY)
_add("vpcmpgtq", 1, 2, 0x37, 1, BINARY)
_add("vpcmpd", 1, 3, 0x1F, 0, BINARY, imm=True)
_add("vpcmpq", 1, 3, 0x1F, 1, BINARY, imm=True)

# Selection: by the sign bits of a fourth register (VEX), or by a mask register (EVEX).
_add("vblendvps", 1, 3, 0x4A, 0, BINARY, imm=True)
_add("vblendvpd", 1, 3, 0x4B, 0, BINARY, imm=True)
_add("vblendmps", 1, 2, 0x65, 0, BINARY)
_add("vblendmpd", 1, 2, 0x65, 1, BINARY)
_add("vpmovm2d", 2, 2, 0x38, 0, UNARY)
_add("vpmovm2q", 2, 2, 0x38, 1, UNARY)
_add("vpmovd2m", 2, 2, 0x39, 0, UNARY)
_add("vpmovq2m", 2, 2, 0x39, 1, UNARY)
_add("vpternlogd", 1, 3, 0x25, 0, BINARY, imm=True)

# Rounding to whole numbers.
_add("vroundps", 1, 3, 0x08, 0, UNARY, imm=True)
_add("vroundpd", 1, 3, 0x09, 1, UNARY, imm=True)
_add("vrndscaleps", 1, 3, 0x08, 0, UNARY, imm=True)
_add("vrndscalepd", 1, 3, 0x09, 1, UNARY, imm=True)

# Conversions; the source or the destination of some is half as wide as the vector.
_add("vcvtdq2ps", 0, 1, 0x5B, 0, UNARY)
_add("vcvttps2dq", 2, 1, 0x5B, 0, UNARY)
_add("vcvtps2pd", 0, 1, 0x5A, 0, UNARY, reach=0)
_add("vcvtpd2ps", 1, 1, 0x5A, 1, UNARY)
_add("vcvtdq2pd", 2, 1, 0xE6, 0, UNARY, reach=0)
_add("vcvttpd2dq", 1, 1, 0xE6, 1, UNARY)
_add("vcvtqq2pd", 2, 1, 0xE6, 1, UNARY)
_add("vcvttpd2qq", 1, 1, 0x7A, 1, UNARY)
_add("vcvtqq2ps", 0, 1, 0x5B, 1, UNARY)
_add("vcvttps2qq", 1, 1, 0x7A, 0, UNARY, reach=0)
_add("vpmovsxdq", 1, 2, 0x25, 0, UNARY, reach=0)
_add("vpmovsxbd", 1, 2, 0x21, 0, UNARY, reach=0)
_add("vpmovsxwd", 1, 2, 0x23, 0, UNARY, reach=0)
_add("vpmovzxbd", 1, 2, 0x31, 0, UNARY, reach=0)
_add("vpmovzxbq", 1, 2, 0x32, 0, UNARY, reach=0)
_add("vpmovzxwd", 1, 2, 0x33, 0, UNARY, reach=0)
_add("vcvtph2ps", 1, 2, 0x13, 0, UNARY, reach=0)
_add("vcvtps2ph", 1, 3, 0x1D, 0, STORE, imm=True, reach=0)
_add("vpmovdb", 2, 2, 0x31, 0, STORE, reach=0)
_add("vpmovqb", 2, 2, 0x32, 0, STORE, reach=0)
_add("vpmovdw", 2, 2, 0x33, 0, STORE, reach=0)
_add("vpmovqd", 2, 2, 0x35, 0, STORE, reach=0)
_add("vpackssdw", 1, 1, 0x6B, 0, BINARY)
_add("vpackusdw", 1, 2, 0x2B, 0, BINARY)
_add("vpacksswb", 1, 1, 0x63, 0, BINARY)
_add("vpackuswb", 1, 1, 0x67, 0, BINARY)

# Moves within and between registers.
_add("vextractf128", 1, 3, 0x19, 0, STORE, imm=True, reach=0)
_add("vextractf32x4", 1, 3, 0x19, 0, STORE, imm=True, reach=0)
_add("vextractf64x4", 1, 3, 0x1B, 1, STORE, imm=True, reach=0)
_add("vshufps", 0, 1, 0xC6, 0, BINARY, imm=True)
_add("vunpckhpd", 1, 1, 0x15, 1, BINARY)
_add("vpermps", 1, 2, 0x16, 0, BINARY)
_add("vbroadcastss", 1, 2, 0x18, 0, UNARY, reach=0)
_add("vbroadcastsd", 1, 2, 0x19, 1, UNARY, reach=0)
_add("vmovddup", 3, 1, 0x12, 1, UNARY, reach=0)
_add("vpbroadcastd", 1, 2, 0x58, 0, UNARY, reach=0)
_add("vpbroadcastq", 1, 2, 0x59, 1, UNARY, reach=0)
_add("vmovups", 0, 1, 0x10, 0, UNARY)
_add("vmovupd", 1, 1, 0x10, 1, UNARY)
_add("vmovaps", 0, 1, 0x28, 0, UNARY)

# Estimates, exponents and mantissas, which AVX-512 brought.
_add("vrcp14ps", 1, 2, 0x4C, 0, UNARY)
_add("vrsqrt14ps", 1, 2, 0x4E, 0, UNARY)
_add("vscalefps", 1, 2, 0x2C, 0, BINARY)
_add("vgetmantps", 1, 3, 0x26, 0, UNARY, imm=True)
_add("vgetexpps", 1, 2, 0x42, 0, UNARY)

# The same mnemonic as a store has another opcode: their names here end in "_store".
STORES: dict[str, Row] = {
    "vmovups": (0, 1, 0x11, 0, STORE, False, _WHOLE),
    "vmovupd": (1, 1, 0x11, 1, STORE, False, _WHOLE),
    "vmovss": (2, 1, 0x11, 0, STORE, False, 0),
    "vmovsd": (3, 1, 0x11, 1, STORE, False, 0),
    "vmovd": (1, 1, 0x7E, 0, STORE, False, 0),
    "vmovq": (1, 1, 0xD6, 1, STORE, False, 0),
}
_add("vmovss", 2, 1, 0x10, 0, UNARY, reach=0)
_add("vmovsd", 3, 1, 0x10, 1, UNARY, reach=0)
_add("vmovd", 1, 1, 0x6E, 0, UNARY, reach=0)
_add("vmovq", 2, 1, 0x7E, 1, UNARY, reach=0)
for _name, _row in STORES.items():
    TABLE[_name + "_store"] = _row

# VEX has W only where the opcode needs it.
VEX_W = frozenset(name for name in TABLE if name.startswith(("vfm", "vfn")) and name.endswith("pd"))
VEX_W |= {"vpsllvq", "vpsrlvq"}
# Without a form in VEX, and without one in EVEX.
EVEX_ONLY = frozenset(
    "vpmullq vpminsq vpmaxsq vpabsq vpsraq vpsravq vpcmpd vpcmpq vblendmps vblendmpd vpmovm2d"
    " vpmovm2q"
    " vpmovd2m vpmovq2m vpternlogd vrndscaleps vrndscalepd vcvtqq2pd vcvttpd2qq vcvtqq2ps"
    " vcvttps2qq vpmovdb vpmovqb vpmovdw vpmovqd vextractf32x4 vextractf64x4 vrcp14ps vrsqrt14ps"
    " vscalefps"
    " vgetmantps vgetexpps vpandd vpandq vpandnd vpandnq vpord vporq vpxord vpxorq".split()
)
VEX_ONLY = frozenset(
    "vblendvps vblendvpd vroundps vroundpd vpand vpandn vpor vpxor vextractf128".split()
)
# Comparisons, whose destination in EVEX is a mask register.
TO_MASK = frozenset(
    "vcmpps vcmppd vpcmpeqd vpcmpgtd vpcmpeqq vpcmpgtq vpcmpd vpcmpq vpmovd2m vpmovq2m".split()
)
