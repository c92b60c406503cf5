"""Instructions of machine code, counted: of the loop in which a kernel multiplies, not of what is around it."""

from __future__ import annotations

from bench.machine_code import counted

CODE = """\
  0000  S2R R0, SR_TID.X
  0010  @!P0 EXIT
.L_x_0:
  0020  LDG.E R1, [R2.64]
  0030  FADD R9, R1, R1
.L_x_1:
  0040  LDS.128 R4, [R8]
  0050  FFMA R1, R4, R5, R1
  0060  FFMA R2, R4, R6, R2
  0070  STL [R1], R4
  0080  @P0 BRA `(.L_x_1)
  0090  ISETP.NE.AND P1, PT, R0, RZ, PT
  00a0  @P1 BRA.U UP0, `(.L_x_0)
  00b0  FFMA R1, R4, R5, R1
  00c0  @P2 BRA `(.L_x_2)
.L_x_2:
  00d0  EXIT
  00e0  NOP
"""


def test_the_hottest_loop_is_counted() -> None:
    assert counted(CODE) == {"instructions": 5, "multiply_adds": 2, "shared_loads": 1, "spills": 1}


def test_straight_code_is_counted_as_a_whole() -> None:
    straight = CODE.replace("BRA `(.L_x_1)", "BRA `(.L_x_2)").replace("UP0, `(.L_x_0)", "UP0, `(.L_x_2)")
    assert counted(straight) == {"instructions": 14, "multiply_adds": 3, "shared_loads": 1, "spills": 1}
    assert counted("") == {"instructions": 0, "multiply_adds": 0, "shared_loads": 0, "spills": 0}
