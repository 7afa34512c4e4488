#include "textflag.h"

// Both kernels add strictly in the order of k, with a separate multiply and add (never FMA), so that every
// element of C is the same float32 that the Go fallback computes. Strides are in bytes.

// One row of A: two products with the row's 16 columns of B, added to the accumulators C0 and C1.
#define ROW(A, C0, C1) \
	VBROADCASTSS A, Y14       \
	VMULPS       Y12, Y14, Y15 \
	VMULPS       Y13, Y14, Y14 \
	VADDPS       Y15, C0, C0   \
	VADDPS       Y14, C1, C1

// func kernel6x16(c *float32, ldc int, a *float32, rs, ks int, b *float32, bs, k int, add bool)
TEXT ·kernel6x16(SB), NOSPLIT, $0-65
	MOVQ    c+0(FP), DI
	MOVQ    ldc+8(FP), R8
	MOVQ    a+16(FP), SI
	MOVQ    rs+24(FP), R9
	MOVQ    ks+32(FP), R10
	MOVQ    b+40(FP), BX
	MOVQ    bs+48(FP), R11
	MOVQ    k+56(FP), CX
	MOVBLZX add+64(FP), AX

	// DX and R13 point at row 3 of A and C: rows 0..2 and 3..5 are base, base+stride, base+2*stride.
	LEAQ (R9)(R9*2), R12
	LEAQ (SI)(R12*1), DX
	LEAQ (R8)(R8*2), R12
	LEAQ (DI)(R12*1), R13

	TESTL AX, AX
	JZ    zero6
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS (DI)(R8*1), Y2
	VMOVUPS 32(DI)(R8*1), Y3
	VMOVUPS (DI)(R8*2), Y4
	VMOVUPS 32(DI)(R8*2), Y5
	VMOVUPS (R13), Y6
	VMOVUPS 32(R13), Y7
	VMOVUPS (R13)(R8*1), Y8
	VMOVUPS 32(R13)(R8*1), Y9
	VMOVUPS (R13)(R8*2), Y10
	VMOVUPS 32(R13)(R8*2), Y11
	JMP     loop6

zero6:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	VXORPS Y8, Y8, Y8
	VXORPS Y9, Y9, Y9
	VXORPS Y10, Y10, Y10
	VXORPS Y11, Y11, Y11

loop6:
	VMOVUPS (BX), Y12
	VMOVUPS 32(BX), Y13
	ROW((SI), Y0, Y1)
	ROW((SI)(R9*1), Y2, Y3)
	ROW((SI)(R9*2), Y4, Y5)
	ROW((DX), Y6, Y7)
	ROW((DX)(R9*1), Y8, Y9)
	ROW((DX)(R9*2), Y10, Y11)
	ADDQ    R10, SI
	ADDQ    R10, DX
	ADDQ    R11, BX
	DECQ    CX
	JNZ     loop6

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, (DI)(R8*1)
	VMOVUPS Y3, 32(DI)(R8*1)
	VMOVUPS Y4, (DI)(R8*2)
	VMOVUPS Y5, 32(DI)(R8*2)
	VMOVUPS Y6, (R13)
	VMOVUPS Y7, 32(R13)
	VMOVUPS Y8, (R13)(R8*1)
	VMOVUPS Y9, 32(R13)(R8*1)
	VMOVUPS Y10, (R13)(R8*2)
	VMOVUPS Y11, 32(R13)(R8*2)
	VZEROUPPER
	RET

// func kernel4x16(c *float32, ldc int, a *float32, rs, ks int, b *float32, bs, k int, add bool)
TEXT ·kernel4x16(SB), NOSPLIT, $0-65
	MOVQ    c+0(FP), DI
	MOVQ    ldc+8(FP), R8
	MOVQ    a+16(FP), SI
	MOVQ    rs+24(FP), R9
	MOVQ    ks+32(FP), R10
	MOVQ    b+40(FP), BX
	MOVQ    bs+48(FP), R11
	MOVQ    k+56(FP), CX
	MOVBLZX add+64(FP), AX
	LEAQ    (R9)(R9*2), R12
	LEAQ    (SI)(R12*1), DX
	LEAQ    (R8)(R8*2), R12
	LEAQ    (DI)(R12*1), R13

	TESTL AX, AX
	JZ    zero4
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS (DI)(R8*1), Y2
	VMOVUPS 32(DI)(R8*1), Y3
	VMOVUPS (DI)(R8*2), Y4
	VMOVUPS 32(DI)(R8*2), Y5
	VMOVUPS (R13), Y6
	VMOVUPS 32(R13), Y7
	JMP     loop4

zero4:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7

loop4:
	VMOVUPS (BX), Y12
	VMOVUPS 32(BX), Y13
	ROW((SI), Y0, Y1)
	ROW((SI)(R9*1), Y2, Y3)
	ROW((SI)(R9*2), Y4, Y5)
	ROW((DX), Y6, Y7)
	ADDQ    R10, SI
	ADDQ    R10, DX
	ADDQ    R11, BX
	DECQ    CX
	JNZ     loop4

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, (DI)(R8*1)
	VMOVUPS Y3, 32(DI)(R8*1)
	VMOVUPS Y4, (DI)(R8*2)
	VMOVUPS Y5, 32(DI)(R8*2)
	VMOVUPS Y6, (R13)
	VMOVUPS Y7, 32(R13)
	VZEROUPPER
	RET

// func kernel1x16(c *float32, a *float32, ks int, b *float32, bs, k int, add bool)
TEXT ·kernel1x16(SB), NOSPLIT, $0-49
	MOVQ    c+0(FP), DI
	MOVQ    a+8(FP), SI
	MOVQ    ks+16(FP), R10
	MOVQ    b+24(FP), BX
	MOVQ    bs+32(FP), R11
	MOVQ    k+40(FP), CX
	MOVBLZX add+48(FP), AX

	TESTL AX, AX
	JZ    zero1
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	JMP     loop1

zero1:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1

loop1:
	VMOVUPS (BX), Y12
	VMOVUPS 32(BX), Y13
	ROW((SI), Y0, Y1)
	ADDQ    R10, SI
	ADDQ    R11, BX
	DECQ    CX
	JNZ     loop1

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VZEROUPPER
	RET

// One panel of B against the element of A in Y14.
#define PANEL(B, C0, C1) \
	VMULPS B, Y14, Y12  \
	VMULPS 32 B, Y14, Y13 \
	VADDPS Y12, C0, C0    \
	VADDPS Y13, C1, C1

// func kernel1x64(c *float32, a *float32, ks int, b *float32, tile, bs, k int, add bool)
TEXT ·kernel1x64(SB), NOSPLIT, $0-57
	MOVQ    c+0(FP), DI
	MOVQ    a+8(FP), SI
	MOVQ    ks+16(FP), R10
	MOVQ    b+24(FP), BX
	MOVQ    tile+32(FP), R9
	MOVQ    bs+40(FP), R11
	MOVQ    k+48(FP), CX
	MOVBLZX add+56(FP), AX
	LEAQ    (R9)(R9*2), R12

	TESTL AX, AX
	JZ    zero64
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	VMOVUPS 128(DI), Y4
	VMOVUPS 160(DI), Y5
	VMOVUPS 192(DI), Y6
	VMOVUPS 224(DI), Y7
	JMP     loop64

zero64:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7

loop64:
	VBROADCASTSS (SI), Y14
	PANEL((BX), Y0, Y1)
	PANEL((BX)(R9*1), Y2, Y3)
	PANEL((BX)(R9*2), Y4, Y5)
	PANEL((BX)(R12*1), Y6, Y7)
	ADDQ    R10, SI
	ADDQ    R11, BX
	DECQ    CX
	JNZ     loop64

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VMOVUPS Y4, 128(DI)
	VMOVUPS Y5, 160(DI)
	VMOVUPS Y6, 192(DI)
	VMOVUPS Y7, 224(DI)
	VZEROUPPER
	RET

// The constants of exp32, and the lanes' exponent bias.
DATA expConst<>+0(SB)/4, $-87.3
DATA expConst<>+4(SB)/4, $88.7
DATA expConst<>+8(SB)/4, $1.44269504088896341
DATA expConst<>+12(SB)/4, $12582912.0
DATA expConst<>+16(SB)/4, $0.693359375
DATA expConst<>+20(SB)/4, $-2.12194440e-4
DATA expConst<>+24(SB)/4, $1.9875691500e-4
DATA expConst<>+28(SB)/4, $1.3981999507e-3
DATA expConst<>+32(SB)/4, $8.3334519073e-3
DATA expConst<>+36(SB)/4, $4.1665795894e-2
DATA expConst<>+40(SB)/4, $1.6666665459e-1
DATA expConst<>+44(SB)/4, $5.0000001201e-1
DATA expConst<>+48(SB)/4, $1.0
DATA expConst<>+52(SB)/4, $127
GLOBL expConst<>(SB), RODATA|NOPTR, $56

// func expKernel(dst, src *float32, n int, scale, shift float32)
TEXT ·expKernel(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y10
	VBROADCASTSS shift+28(FP), Y11
	LEAQ         expConst<>(SB), BX
	VBROADCASTSS 0(BX), Y12
	VBROADCASTSS 12(BX), Y13
	VBROADCASTSS 52(BX), Y15

loopExp:
	VMULPS  (SI), Y10, Y0
	VSUBPS  Y11, Y0, Y0           // x
	VCMPPS  $1, Y12, Y0, Y9       // x < -87.3
	VBROADCASTSS 4(BX), Y1
	VMINPS  Y1, Y0, Y0
	VMAXPS  Y12, Y0, Y0           // keeps the exponent in range where the result is masked
	VBROADCASTSS 8(BX), Y1
	VMULPS  Y1, Y0, Y2
	VADDPS  Y13, Y2, Y2
	VSUBPS  Y13, Y2, Y2           // n
	VBROADCASTSS 16(BX), Y1
	VMULPS  Y1, Y2, Y3
	VSUBPS  Y3, Y0, Y0
	VBROADCASTSS 20(BX), Y1
	VMULPS  Y1, Y2, Y3
	VSUBPS  Y3, Y0, Y0            // r
	VBROADCASTSS 24(BX), Y4
	VBROADCASTSS 28(BX), Y1
	VMULPS  Y0, Y4, Y4
	VADDPS  Y1, Y4, Y4
	VBROADCASTSS 32(BX), Y1
	VMULPS  Y0, Y4, Y4
	VADDPS  Y1, Y4, Y4
	VBROADCASTSS 36(BX), Y1
	VMULPS  Y0, Y4, Y4
	VADDPS  Y1, Y4, Y4
	VBROADCASTSS 40(BX), Y1
	VMULPS  Y0, Y4, Y4
	VADDPS  Y1, Y4, Y4
	VBROADCASTSS 44(BX), Y1
	VMULPS  Y0, Y4, Y4
	VADDPS  Y1, Y4, Y4
	VMULPS  Y0, Y4, Y4
	VMULPS  Y0, Y4, Y4
	VADDPS  Y0, Y4, Y4
	VBROADCASTSS 48(BX), Y1
	VADDPS  Y1, Y4, Y4            // the polynomial
	VCVTTPS2DQ Y2, Y5             // n as an integer
	VPSRLD  $31, Y5, Y6
	VPADDD  Y6, Y5, Y6
	VPSRAD  $1, Y6, Y6            // n/2, toward zero
	VPSUBD  Y6, Y5, Y5
	VPADDD  Y15, Y6, Y6
	VPSLLD  $23, Y6, Y6
	VPADDD  Y15, Y5, Y5
	VPSLLD  $23, Y5, Y5
	VMULPS  Y6, Y4, Y4
	VMULPS  Y5, Y4, Y4
	VANDNPS Y4, Y9, Y4
	VMOVUPS Y4, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JG      loopExp
	VZEROUPPER
	RET

// func rectifyKernel(x *float32, n int)
TEXT ·rectifyKernel(SB), NOSPLIT, $0-16
	MOVQ x+0(FP), DI
	MOVQ n+8(FP), CX

loopRect:
	VMOVUPS (DI), Y0
	VPSRAD  $31, Y0, Y1
	VPANDN  Y0, Y1, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, DI
	SUBQ    $8, CX
	JG      loopRect
	VZEROUPPER
	RET

// func rectifyBackwardKernel(grad, out *float32, n int)
TEXT ·rectifyBackwardKernel(SB), NOSPLIT, $0-24
	MOVQ   grad+0(FP), DI
	MOVQ   out+8(FP), SI
	MOVQ   n+16(FP), CX
	VPXOR  Y2, Y2, Y2

loopRectBack:
	VMOVUPS  (SI), Y0
	VPCMPGTD Y2, Y0, Y1
	VPAND    (DI), Y1, Y1
	VMOVUPS  Y1, (DI)
	ADDQ     $32, DI
	ADDQ     $32, SI
	SUBQ     $8, CX
	JG       loopRectBack
	VZEROUPPER
	RET
