# The machine instructions that are emitted, by Intel's names, and which of them computes what.

cdef extern from *:
    """
    /* What operands an instruction has: reg, second source (vvvv) and reg/memory; a store has reg/memory as its
       destination; a shift has the count as imm8 and a digit in the place of reg. */
    enum { TGJ_BINARY, TGJ_UNARY, TGJ_STORE, TGJ_SHIFT };

    /* (name, prefix, map, opcode, W in EVEX, form, imm8, reach, W in VEX): prefix and map as the encodings count them
       (0 none, 1 66, 2 F3, 3 F2; 1 0F, 2 0F38, 3 0F3A); the digit of a shift is in bits 8 and up of the opcode; reach
       is 1 where a memory operand is as large as the vector, which scales short displacements of EVEX. VEX has W only
       where the opcode needs it. Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2. */
    #define TGJ_FLOATS(_, name, opcode) \\
        _(name##ps, 0, 1, opcode, 0, BINARY, 0, 1, 0) _(name##pd, 1, 1, opcode, 1, BINARY, 0, 1, 0)
    #define TGJ_FUSED(_, name, opcode) \\
        _(name##ps, 1, 2, opcode, 0, BINARY, 0, 1, 0) _(name##pd, 1, 2, opcode, 1, BINARY, 0, 1, 1)
    #define TGJ_LOGIC(_, name, opcode) \\
        _(name, 1, 1, opcode, 0, BINARY, 0, 1, 0) _(name##d, 1, 1, opcode, 0, BINARY, 0, 1, 0) \\
        _(name##q, 1, 1, opcode, 1, BINARY, 0, 1, 0)
    #define TGJ_INSTRUCTIONS(_) \\
        TGJ_FLOATS(_, vadd, 0x58) TGJ_FLOATS(_, vmul, 0x59) TGJ_FLOATS(_, vsub, 0x5C) \\
        TGJ_FLOATS(_, vmin, 0x5D) TGJ_FLOATS(_, vdiv, 0x5E) TGJ_FLOATS(_, vmax, 0x5F) \\
        _(vsqrtps, 0, 1, 0x51, 0, UNARY, 0, 1, 0) _(vsqrtpd, 1, 1, 0x51, 1, UNARY, 0, 1, 0) \\
        _(vaddsd, 3, 1, 0x58, 1, BINARY, 0, 0, 0) \\
        _(vdivsd, 3, 1, 0x5E, 1, BINARY, 0, 0, 0) \\
        _(vcvtss2sd, 2, 1, 0x5A, 0, BINARY, 0, 0, 0) _(vcvtsd2ss, 3, 1, 0x5A, 1, BINARY, 0, 0, 0) \\
        TGJ_FUSED(_, vfmadd132, 0x98) TGJ_FUSED(_, vfmadd213, 0xA8) TGJ_FUSED(_, vfmadd231, 0xB8) \\
        TGJ_FUSED(_, vfnmadd132, 0x9C) TGJ_FUSED(_, vfnmadd213, 0xAC) TGJ_FUSED(_, vfnmadd231, 0xBC) \\
        /* integers; logic of all types, which AVX-512 has by element size */ \\
        _(vpaddd, 1, 1, 0xFE, 0, BINARY, 0, 1, 0) _(vpaddq, 1, 1, 0xD4, 1, BINARY, 0, 1, 0) \\
        _(vpsubd, 1, 1, 0xFA, 0, BINARY, 0, 1, 0) _(vpsubq, 1, 1, 0xFB, 1, BINARY, 0, 1, 0) \\
        _(vpmulld, 1, 2, 0x40, 0, BINARY, 0, 1, 0) _(vpmullq, 1, 2, 0x40, 1, BINARY, 0, 1, 0) \\
        _(vpminsd, 1, 2, 0x39, 0, BINARY, 0, 1, 0) _(vpminsq, 1, 2, 0x39, 1, BINARY, 0, 1, 0) \\
        _(vpmaxsd, 1, 2, 0x3D, 0, BINARY, 0, 1, 0) _(vpmaxsq, 1, 2, 0x3D, 1, BINARY, 0, 1, 0) \\
        _(vpabsb, 1, 2, 0x1C, 0, UNARY, 0, 1, 0) _(vpabsd, 1, 2, 0x1E, 0, UNARY, 0, 1, 0) \\
        _(vpabsq, 1, 2, 0x1F, 1, UNARY, 0, 1, 0) \\
        TGJ_LOGIC(_, vpand, 0xDB) TGJ_LOGIC(_, vpandn, 0xDF) TGJ_LOGIC(_, vpor, 0xEB) TGJ_LOGIC(_, vpxor, 0xEF) \\
        _(vpslld, 1, 1, 0x672, 0, SHIFT, 1, 1, 0) _(vpsrld, 1, 1, 0x272, 0, SHIFT, 1, 1, 0) \\
        _(vpsrad, 1, 1, 0x472, 0, SHIFT, 1, 1, 0) _(vpsllq, 1, 1, 0x673, 1, SHIFT, 1, 1, 0) \\
        _(vpsrlq, 1, 1, 0x273, 1, SHIFT, 1, 1, 0) _(vpsraq, 1, 1, 0x472, 1, SHIFT, 1, 1, 0) \\
        /* comparisons: into a vector (VEX) or into a mask register (EVEX) */ \\
        _(vcmpps, 0, 1, 0xC2, 0, BINARY, 1, 1, 0) _(vcmppd, 1, 1, 0xC2, 1, BINARY, 1, 1, 0) \\
        _(vpcmpeqd, 1, 1, 0x76, 0, BINARY, 0, 1, 0) _(vpcmpgtd, 1, 1, 0x66, 0, BINARY, 0, 1, 0) \\
        _(vpcmpeqq, 1, 2, 0x29, 1, BINARY, 0, 1, 0) _(vpcmpgtq, 1, 2, 0x37, 1, BINARY, 0, 1, 0) \\
        _(vpcmpd, 1, 3, 0x1F, 0, BINARY, 1, 1, 0) _(vpcmpq, 1, 3, 0x1F, 1, BINARY, 1, 1, 0) \\
        /* selection: by the sign bits of a fourth register (VEX), or by a mask register (EVEX) */ \\
        _(vblendvps, 1, 3, 0x4A, 0, BINARY, 1, 1, 0) _(vblendvpd, 1, 3, 0x4B, 0, BINARY, 1, 1, 0) \\
        _(vblendmps, 1, 2, 0x65, 0, BINARY, 0, 1, 0) _(vblendmpd, 1, 2, 0x65, 1, BINARY, 0, 1, 0) \\
        _(vpmovm2d, 2, 2, 0x38, 0, UNARY, 0, 1, 0) _(vpmovm2q, 2, 2, 0x38, 1, UNARY, 0, 1, 0) \\
        _(vpmovd2m, 2, 2, 0x39, 0, UNARY, 0, 1, 0) _(vpmovq2m, 2, 2, 0x39, 1, UNARY, 0, 1, 0) \\
        _(vpternlogd, 1, 3, 0x25, 0, BINARY, 1, 1, 0) \\
        /* rounding to whole numbers */ \\
        _(vroundps, 1, 3, 0x08, 0, UNARY, 1, 1, 0) _(vroundpd, 1, 3, 0x09, 1, UNARY, 1, 1, 0) \\
        _(vrndscaleps, 1, 3, 0x08, 0, UNARY, 1, 1, 0) _(vrndscalepd, 1, 3, 0x09, 1, UNARY, 1, 1, 0) \\
        /* conversions; the source or the destination of some is half as wide as the vector */ \\
        _(vcvtdq2ps, 0, 1, 0x5B, 0, UNARY, 0, 1, 0) _(vcvttps2dq, 2, 1, 0x5B, 0, UNARY, 0, 1, 0) \\
        _(vcvtps2pd, 0, 1, 0x5A, 0, UNARY, 0, 0, 0) _(vcvtpd2ps, 1, 1, 0x5A, 1, UNARY, 0, 1, 0) \\
        _(vcvtdq2pd, 2, 1, 0xE6, 0, UNARY, 0, 0, 0) _(vcvttpd2dq, 1, 1, 0xE6, 1, UNARY, 0, 1, 0) \\
        _(vcvtqq2pd, 2, 1, 0xE6, 1, UNARY, 0, 1, 0) _(vcvttpd2qq, 1, 1, 0x7A, 1, UNARY, 0, 1, 0) \\
        _(vcvtqq2ps, 0, 1, 0x5B, 1, UNARY, 0, 1, 0) _(vcvttps2qq, 1, 1, 0x7A, 0, UNARY, 0, 0, 0) \\
        _(vpmovsxdq, 1, 2, 0x25, 0, UNARY, 0, 0, 0) _(vpmovsxbd, 1, 2, 0x21, 0, UNARY, 0, 0, 0) \\
        _(vpmovsxwd, 1, 2, 0x23, 0, UNARY, 0, 0, 0) _(vpmovzxbd, 1, 2, 0x31, 0, UNARY, 0, 0, 0) \\
        _(vpmovzxbq, 1, 2, 0x32, 0, UNARY, 0, 0, 0) _(vpmovzxwd, 1, 2, 0x33, 0, UNARY, 0, 0, 0) \\
        _(vcvtph2ps, 1, 2, 0x13, 0, UNARY, 0, 0, 0) _(vcvtps2ph, 1, 3, 0x1D, 0, STORE, 1, 0, 0) \\
        _(vpmovdb, 2, 2, 0x31, 0, STORE, 0, 0, 0) _(vpmovqb, 2, 2, 0x32, 0, STORE, 0, 0, 0) \\
        _(vpmovdw, 2, 2, 0x33, 0, STORE, 0, 0, 0) _(vpmovqd, 2, 2, 0x35, 0, STORE, 0, 0, 0) \\
        _(vpackssdw, 1, 1, 0x6B, 0, BINARY, 0, 1, 0) _(vpackusdw, 1, 2, 0x2B, 0, BINARY, 0, 1, 0) \\
        _(vpacksswb, 1, 1, 0x63, 0, BINARY, 0, 1, 0) _(vpackuswb, 1, 1, 0x67, 0, BINARY, 0, 1, 0) \\
        /* moves within and between registers */ \\
        _(vextractf128, 1, 3, 0x19, 0, STORE, 1, 0, 0) _(vextractf32x4, 1, 3, 0x19, 0, STORE, 1, 0, 0) \\
        _(vextractf64x4, 1, 3, 0x1B, 1, STORE, 1, 0, 0) _(vshufps, 0, 1, 0xC6, 0, BINARY, 1, 1, 0) \\
        _(vunpckhpd, 1, 1, 0x15, 1, BINARY, 0, 1, 0) _(vpermps, 1, 2, 0x16, 0, BINARY, 0, 1, 0) \\
        _(vbroadcastss, 1, 2, 0x18, 0, UNARY, 0, 0, 0) _(vbroadcastsd, 1, 2, 0x19, 1, UNARY, 0, 0, 0) \\
        _(vmovddup, 3, 1, 0x12, 1, UNARY, 0, 0, 0) \\
        _(vmovups, 0, 1, 0x10, 0, UNARY, 0, 1, 0) _(vmovupd, 1, 1, 0x10, 1, UNARY, 0, 1, 0) \\
        _(vmovaps, 0, 1, 0x28, 0, UNARY, 0, 1, 0) \\
        _(vmovss, 2, 1, 0x10, 0, UNARY, 0, 0, 0) _(vmovsd, 3, 1, 0x10, 1, UNARY, 0, 0, 0) \\
        _(vmovd, 1, 1, 0x6E, 0, UNARY, 0, 0, 0) _(vmovq, 2, 1, 0x7E, 1, UNARY, 0, 0, 0) \\
        /* the same mnemonic as a store has another opcode */ \\
        _(vmovups_store, 0, 1, 0x11, 0, STORE, 0, 1, 0) _(vmovupd_store, 1, 1, 0x11, 1, STORE, 0, 1, 0) \\
        _(vmovss_store, 2, 1, 0x11, 0, STORE, 0, 0, 0) _(vmovsd_store, 3, 1, 0x11, 1, STORE, 0, 0, 0) \\
        _(vmovd_store, 1, 1, 0x7E, 0, STORE, 0, 0, 0) _(vmovq_store, 1, 1, 0xD6, 1, STORE, 0, 0, 0) \\
        /* estimates, exponents and mantissas, which AVX-512 brought */ \\
        _(vrcp14ps, 1, 2, 0x4C, 0, UNARY, 0, 1, 0) _(vscalefps, 1, 2, 0x2C, 0, BINARY, 0, 1, 0) \\
        _(vgetmantps, 1, 3, 0x26, 0, UNARY, 1, 1, 0) _(vgetexpps, 1, 2, 0x42, 0, UNARY, 0, 1, 0)

    #define TGJ_NAME(name, prefix, map, opcode, w, form, imm, reach, vex_w) tgj_##name,
    enum { tgj_none, TGJ_INSTRUCTIONS(TGJ_NAME) tgj_instructions };
    #undef TGJ_NAME
    typedef struct { const char *name; uint16_t opcode; uint8_t prefix, map, w, form, imm, reach, vex_w; } tgj_row;
    #define TGJ_ROW(name, prefix, map, opcode, w, form, imm, reach, vex_w) \\
        {#name, opcode, prefix, map, w, TGJ_##form, imm, reach, vex_w},
    static const tgj_row tgj_rows[] = {{"", 0, 0, 0, 0, 0, 0, 0, 0}, TGJ_INSTRUCTIONS(TGJ_ROW)};
    #undef TGJ_ROW

    /* Operations of vector SSA, and their types. */
    #define TGJ_OPERATIONS(_) \\
        _(const) _(table) _(load) _(uniform) _(number) _(fold) _(as) _(add) _(sub) _(mul) _(div) _(max) _(min) \\
        _(scalef) _(and) _(or) _(xor) _(andn) _(sqrt) _(abs) _(rcp14) _(getmant) _(getexp) _(round) _(shl) _(shr) \\
        _(sar) _(fma) _(fnma) _(tern) _(permute) _(cmp) _(select) _(resize) _(convert) _(half)
    #define TGJ_NAME(name) tgj_op_##name,
    enum { TGJ_OPERATIONS(TGJ_NAME) tgj_operations };
    #undef TGJ_NAME
    #define TGJ_NAME(name) #name,
    static const char *const tgj_operation_names[] = {TGJ_OPERATIONS(TGJ_NAME)};
    #undef TGJ_NAME
    enum { TGJ_F4, TGJ_F8, TGJ_I4, TGJ_I8, TGJ_M4, TGJ_M8, TGJ_TYPES };
    static const char *const tgj_type_names[] = {"f4", "f8", "i4", "i8", "m4", "m8"};

    /* Which instruction computes an operation of a type, where one does. */
    static const uint8_t tgj_plain[tgj_operations][4] = {
        [tgj_op_add] = {tgj_vaddps, tgj_vaddpd, tgj_vpaddd, tgj_vpaddq},
        [tgj_op_sub] = {tgj_vsubps, tgj_vsubpd, tgj_vpsubd, tgj_vpsubq},
        [tgj_op_mul] = {tgj_vmulps, tgj_vmulpd, tgj_vpmulld, tgj_vpmullq},
        [tgj_op_div] = {tgj_vdivps, tgj_vdivpd},
        [tgj_op_max] = {tgj_vmaxps, tgj_vmaxpd, tgj_vpmaxsd, tgj_vpmaxsq},
        [tgj_op_min] = {tgj_vminps, tgj_vminpd, tgj_vpminsd, tgj_vpminsq},
        [tgj_op_scalef] = {tgj_vscalefps},
        [tgj_op_sqrt] = {tgj_vsqrtps, tgj_vsqrtpd},
        [tgj_op_abs] = {0, 0, tgj_vpabsd, tgj_vpabsq},
        [tgj_op_rcp14] = {tgj_vrcp14ps},
        [tgj_op_getmant] = {tgj_vgetmantps},
        [tgj_op_getexp] = {tgj_vgetexpps},
        [tgj_op_shl] = {0, 0, tgj_vpslld, tgj_vpsllq},
        [tgj_op_shr] = {0, 0, tgj_vpsrld, tgj_vpsrlq},
        [tgj_op_sar] = {0, 0, tgj_vpsrad, tgj_vpsraq},
        [tgj_op_fma] = {tgj_vfmadd132ps, tgj_vfmadd132pd},
        [tgj_op_fnma] = {tgj_vfnmadd132ps, tgj_vfnmadd132pd},
    };
    /* Logic in VEX, and of elements of 4 and 8 bytes in EVEX. */
    static const uint8_t tgj_logic[tgj_operations][3] = {
        [tgj_op_and] = {tgj_vpand, tgj_vpandd, tgj_vpandq},
        [tgj_op_or] = {tgj_vpor, tgj_vpord, tgj_vporq},
        [tgj_op_xor] = {tgj_vpxor, tgj_vpxord, tgj_vpxorq},
        [tgj_op_andn] = {tgj_vpandn, tgj_vpandnd, tgj_vpandnq},
    };
    /* Conversions by source and result; what is not here takes the lower halves of lanes of 8 bytes. */
    static const uint8_t tgj_conversions[TGJ_TYPES][TGJ_TYPES] = {
        [TGJ_I4] = {[TGJ_F4] = tgj_vcvtdq2ps, [TGJ_F8] = tgj_vcvtdq2pd, [TGJ_I8] = tgj_vpmovsxdq},
        [TGJ_F4] = {[TGJ_I4] = tgj_vcvttps2dq, [TGJ_F8] = tgj_vcvtps2pd, [TGJ_I8] = tgj_vcvttps2qq},
        [TGJ_F8] = {[TGJ_F4] = tgj_vcvtpd2ps, [TGJ_I4] = tgj_vcvttpd2dq, [TGJ_I8] = tgj_vcvttpd2qq},
        [TGJ_I8] = {[TGJ_F8] = tgj_vcvtqq2pd, [TGJ_F4] = tgj_vcvtqq2ps},
        [TGJ_M4] = {[TGJ_M8] = tgj_vpmovsxdq},
    };
    #define tgj_plain_of(operation, type) ((type) < TGJ_M4 ? tgj_plain[operation][type] : 0)
    #define tgj_logic_of(operation, form) tgj_logic[operation][form]
    #define tgj_conversion_of(source, result) tgj_conversions[source][result]
    """
    enum:
        BINARY "TGJ_BINARY"
        UNARY "TGJ_UNARY"
        STORE "TGJ_STORE"
        SHIFT "TGJ_SHIFT"
    enum:
        INSTRUCTIONS "tgj_instructions"
        vaddps "tgj_vaddps", vaddpd "tgj_vaddpd", vaddsd "tgj_vaddsd", vdivsd "tgj_vdivsd"
        vmaxps "tgj_vmaxps", vmaxpd "tgj_vmaxpd", vminps "tgj_vminps", vminpd "tgj_vminpd"
        vcvtss2sd "tgj_vcvtss2sd", vcvtsd2ss "tgj_vcvtsd2ss", vcvtps2pd "tgj_vcvtps2pd"
        vpabsb "tgj_vpabsb", vpabsd "tgj_vpabsd", vpabsq "tgj_vpabsq", vpsubd "tgj_vpsubd", vpsubq "tgj_vpsubq"
        vpxor "tgj_vpxor", vpxorq "tgj_vpxorq", vpslld "tgj_vpslld", vpsrld "tgj_vpsrld"
        vcmpps "tgj_vcmpps", vcmppd "tgj_vcmppd", vpcmpd "tgj_vpcmpd", vpcmpq "tgj_vpcmpq"
        vpcmpeqd "tgj_vpcmpeqd", vpcmpeqq "tgj_vpcmpeqq", vpcmpgtd "tgj_vpcmpgtd", vpcmpgtq "tgj_vpcmpgtq"
        vblendvps "tgj_vblendvps", vblendvpd "tgj_vblendvpd", vblendmps "tgj_vblendmps", vblendmpd "tgj_vblendmpd"
        vpmovm2d "tgj_vpmovm2d", vpmovm2q "tgj_vpmovm2q", vpmovd2m "tgj_vpmovd2m", vpmovq2m "tgj_vpmovq2m"
        vpternlogd "tgj_vpternlogd", vpermps "tgj_vpermps"
        vroundps "tgj_vroundps", vroundpd "tgj_vroundpd", vrndscaleps "tgj_vrndscaleps", vrndscalepd "tgj_vrndscalepd"
        vpmovsxbd "tgj_vpmovsxbd", vpmovsxwd "tgj_vpmovsxwd", vpmovzxbd "tgj_vpmovzxbd", vpmovzxbq "tgj_vpmovzxbq"
        vpmovzxwd "tgj_vpmovzxwd", vcvtph2ps "tgj_vcvtph2ps", vcvtps2ph "tgj_vcvtps2ph"
        vpmovdb "tgj_vpmovdb", vpmovqb "tgj_vpmovqb", vpmovdw "tgj_vpmovdw", vpmovqd "tgj_vpmovqd"
        vpackssdw "tgj_vpackssdw", vpackusdw "tgj_vpackusdw", vpacksswb "tgj_vpacksswb", vpackuswb "tgj_vpackuswb"
        vextractf128 "tgj_vextractf128", vextractf32x4 "tgj_vextractf32x4", vextractf64x4 "tgj_vextractf64x4"
        vshufps "tgj_vshufps", vunpckhpd "tgj_vunpckhpd", vbroadcastss "tgj_vbroadcastss"
        vbroadcastsd "tgj_vbroadcastsd", vmovddup "tgj_vmovddup", vmovups "tgj_vmovups", vmovupd "tgj_vmovupd"
        vmovaps "tgj_vmovaps", vmovss "tgj_vmovss", vmovsd "tgj_vmovsd", vmovd "tgj_vmovd", vmovq "tgj_vmovq"
        vmovups_store "tgj_vmovups_store", vmovupd_store "tgj_vmovupd_store", vmovss_store "tgj_vmovss_store"
        vmovsd_store "tgj_vmovsd_store", vmovd_store "tgj_vmovd_store", vmovq_store "tgj_vmovq_store"
    enum:
        OPERATIONS "tgj_operations"
        CONST "tgj_op_const", TABLE "tgj_op_table", LOAD "tgj_op_load", UNIFORM "tgj_op_uniform"
        NUMBER "tgj_op_number", FOLD "tgj_op_fold", AS "tgj_op_as"
        ADD "tgj_op_add", MUL "tgj_op_mul", MAX "tgj_op_max", MIN "tgj_op_min", AND "tgj_op_and", OR "tgj_op_or"
        XOR "tgj_op_xor", ANDN "tgj_op_andn", DIV "tgj_op_div", SQRT "tgj_op_sqrt"
        ROUND "tgj_op_round", SHL "tgj_op_shl", SAR "tgj_op_sar", FMA "tgj_op_fma", FNMA "tgj_op_fnma"
        TERN "tgj_op_tern", PERMUTE "tgj_op_permute", CMP "tgj_op_cmp", SELECT "tgj_op_select"
        RESIZE "tgj_op_resize", CONVERT "tgj_op_convert", HALF "tgj_op_half"
    enum:
        F4 "TGJ_F4", F8 "TGJ_F8", I4 "TGJ_I4", M4 "TGJ_M4", M8 "TGJ_M8", TYPES "TGJ_TYPES"
    ctypedef struct Row "tgj_row":
        const char* name
        int opcode, prefix, map, w, form, imm, reach, vex_w
    const Row* rows "tgj_rows"
    const char* const* operation_names "tgj_operation_names"
    const char* const* type_names "tgj_type_names"
    int plain_of "tgj_plain_of"(int operation, int type) noexcept
    int logic_of "tgj_logic_of"(int operation, int form) noexcept
    int conversion_of "tgj_conversion_of"(int source, int result) noexcept
