"""Two vector operations that LLVM does not find by itself in Numba loops, written as explicit vectors of doubles.

Numba leaves short loops over rows of one array scalar, since it cannot prove that the rows do not overlap. These
intrinsics emit the vector instructions in LLVM's portable form, so they compile on every processor. They check no
bounds: `kernels.py` alone calls them.
"""

# mypy: disable-error-code="no-untyped-def"
# The compiler infers the types of these functions.

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8  # boxes whose losses are computed together
STRIDE = 4  # rows of moments are padded to a multiple of this

_INT = ir.IntType(64)
_CONTRACT = ("contract",)  # allow fused multiply-add, nothing else


def _vectors(context: Any, builder: Any, array_type: Any, array: Any, vector: Any, offset: Any = None) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    if offset is not None:
        data = builder.gep(data, [offset])
    return builder.bitcast(data, vector.as_pointer())


@intrinsic
def add_rows(typing_context, target, target_at, source, source_at, n_vectors):
    """``target[target_at:][:4 * n_vectors] += source[source_at:][...]``: C-contiguous float64, offsets in elements."""
    signature = types.void(target, types.intp, source, types.intp, types.intp)

    def codegen(context, builder, sig, args):
        vector = ir.VectorType(ir.DoubleType(), STRIDE)
        into = _vectors(context, builder, sig.args[0], args[0], vector, args[1])
        summand = _vectors(context, builder, sig.args[2], args[2], vector, args[3])
        with cgutils.for_range(builder, args[4]) as loop:
            place = builder.gep(into, [loop.index])
            other = builder.load(builder.gep(summand, [loop.index]), align=8)
            builder.store(builder.fadd(builder.load(place, align=8), other), place, align=8)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def eliminate(typing_context, lanes, k, kappa, jitter, relative_pivot):
    """Symmetric elimination of the first k columns of `LANES` packed augmented moment matrices at once, in place.

    `lanes` is flat, ``(q + k) * LANES``: entry e of lane l at ``e * LANES + l``, the last k entries are scratch.
    Afterwards entry q - 1 is the Schur complement ``y'y - b' A^-1 b``, the ridge loss. A pivot of the Gram matrix
    plus ridge is at least the ridge, so rounding is clipped there; a pivot below `relative_pivot` of its diagonal
    entry (possible without a ridge) marks a dependent column, which is left out.
    """
    signature = types.void(lanes, types.intp, types.float64, types.float64, types.float64)

    def codegen(context, builder, sig, args):
        vector = ir.VectorType(ir.DoubleType(), LANES)
        zero, one = ir.Constant(vector, [0.0] * LANES), ir.Constant(vector, [1.0] * LANES)
        n_columns = args[1]
        base = _vectors(context, builder, sig.args[0], args[0], vector)

        def integer(value: int) -> Any:
            return ir.Constant(_INT, value)

        def triangle(i: Any) -> Any:
            return builder.lshr(builder.mul(i, builder.add(i, integer(1))), integer(1))

        def load(i: Any) -> Any:
            return builder.load(builder.gep(base, [i]), align=8)

        def store(value: Any, i: Any) -> None:
            builder.store(value, builder.gep(base, [i]), align=8)

        def spread(scalar: Any) -> Any:
            first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
            mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)

        def ridge(j: Any) -> Any:
            return spread(builder.select(builder.icmp_signed("==", j, integer(0)), args[3], args[2]))

        scratch = triangle(builder.add(n_columns, integer(1)))
        with cgutils.for_range(builder, n_columns) as columns:
            j = columns.index
            diagonal = builder.fadd(load(builder.add(triangle(j), j)), ridge(j))
            store(builder.fmul(spread(args[4]), diagonal), builder.add(scratch, j))
        with cgutils.for_range(builder, n_columns) as columns:
            j = columns.index
            rest = load(builder.add(triangle(j), j))
            rest = builder.select(builder.fcmp_ordered(">", rest, zero), rest, zero)
            pivot = builder.fadd(rest, ridge(j))
            kept = builder.fcmp_ordered(">", pivot, load(builder.add(scratch, j)))
            inverse = builder.select(kept, builder.fdiv(one, builder.select(kept, pivot, one)), zero)
            below = builder.add(j, integer(1))
            end = builder.add(n_columns, integer(1))
            with cgutils.for_range_slice(builder, below, end, integer(1), _INT) as (i, _):
                row = triangle(i)
                factor = builder.fmul(load(builder.add(row, j)), inverse)
                with cgutils.for_range_slice(builder, below, builder.add(i, integer(1)), integer(1), _INT) as (m, _):
                    place = builder.add(row, m)
                    update = builder.fmul(factor, load(builder.add(triangle(m), j)), flags=_CONTRACT)
                    store(builder.fsub(load(place), update, flags=_CONTRACT), place)
        return context.get_dummy_value()

    return signature, codegen
