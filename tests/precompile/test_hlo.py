"""Collectives read from programs, as torch-xla 2.9 writes them."""

from collections import Counter

import pytest

from kitae.precompile.hlo import Collective, collectives

PROGRAM = """\
HloModule IrToHlo.80, entry_computation_layout={(f32[], bf16[4,3]{1,0})->(bf16[8,3]{1,0})}

%MaxComputation.10 (x.11: bf16[], y.12: bf16[]) -> bf16[] {
  ROOT %maximum.13 = bf16[] maximum(bf16[] %x.11, bf16[] %y.12)
}

ENTRY %IrToHlo.80 (p0.1: f32[], p1.4: bf16[4,3]) -> (bf16[8,3]) {
  %p1.4 = bf16[4,3]{1,0} parameter(1)
  %all-reduce.16 = (bf16[4,3]{1,0}, bf16[]) all-reduce(bf16[4,3]{1,0} %get-tuple-element.14, \
bf16[] %get-tuple-element.15), replica_groups={{0,1},{2,3}}, to_apply=%MaxComputation.10
  %get-tuple-element.18 = bf16[] get-tuple-element((bf16[4,3]{1,0}, bf16[]) %all-reduce.16), index=1
  %all-gather.23 = bf16[8,3]{1,0} all-gather(bf16[4,3]{1,0} %add.22), \
replica_groups={{0,1},{2,3}}, dimensions={0}
  %all-gather.32 = bf16[8,3]{1,0} all-gather(bf16[4,3]{1,0} %add.31), \
replica_groups={{0,1},{2,3}}, dimensions={0}
  %all-to-all.58 = f32[2,12]{1,0} all-to-all(f32[2,12]{1,0} %add.57), \
replica_groups={{0,2},{1,3}}, dimensions={0}
  %reduce-scatter.73 = bf16[4,3]{1,0} reduce-scatter(bf16[8,3]{1,0} %add.68), \
replica_groups={{0,1,2,3}}, constrain_layout=true, dimensions={0}, to_apply=%AddComputation.69
  %all-reduce.90 = (s64[]{0}, s64[]) all-reduce(s64[] %get-tuple-element.88, \
s64[] %get-tuple-element.89), replica_groups={{0},{1},{2},{3}}, to_apply=%AddComputation.84
}
"""
PAIRS = ((0, 1), (2, 3))


def test_each_kind_with_its_groups_and_bytes():
    """The scalar that orders an all-reduce is no payload; results and mentions are not counted."""
    assert collectives(PROGRAM) == Counter(
        {
            Collective("all_reduce", PAIRS, 24): 1,
            Collective("all_gather", PAIRS, 24): 2,
            Collective("all_to_all", ((0, 2), (1, 3)), 96): 1,
            Collective("reduce_scatter", ((0, 1, 2, 3),), 48): 1,
            Collective("all_reduce", ((0,), (1,), (2,), (3,)), 8): 1,
        }
    )


@pytest.mark.parametrize(
    ("operand", "size"),
    [
        ("pred[5]", 5),
        ("s8[3,2]", 6),
        ("u32[]", 4),
        ("f16[2]{0}", 4),
        ("f64[1,1]{1,0}", 8),
        ("f8e4m3fn[4]", 4),
    ],
)
def test_bytes_by_dtype(operand, size):
    line = f"  %all-gather.1 = {operand} all-gather({operand} %x), replica_groups={{{{0}}}}, dimensions={{0}}"
    assert collectives(line) == {Collective("all_gather", ((0,),), size): 1}


def test_a_program_without_any():
    assert not collectives("ENTRY %a () -> f32[] { ROOT %b = f32[] constant(1) }")
