r"""Sets of atoms with a linear minimisation oracle (chapter "Introduction and Background").

An atom set 𝒜 answers one question,

    lmo_𝒜(d) = argmin_{z ∈ 𝒜} ⟨d, z⟩,

and solvers minimise over its convex hull, its linear span or its conic hull. The answer is structured (a signed
coordinate, a rank-one matrix, a column of a dictionary), so that adding it to an iterate costs what it should, and
comes with a lower bound on the minimum: ``ask`` gives both, ``lmo`` the atom as a dense array of the caller's kind.
"""

from unknot.solvers.atoms.base import Answer, AtomSet, Custom, Inexact, Lazy, Symmetric, Wrapper, as_atoms
from unknot.solvers.atoms.dictionary import Dictionary
from unknot.solvers.atoms.matrices import NuclearBall, PSDTrace
from unknot.solvers.atoms.vectors import (
    Birkhoff,
    Box,
    GroupBall,
    KSparse,
    L1Ball,
    L2Ball,
    LInfBall,
    Product,
    SignedCoordinates,
    Simplex,
)
from unknot.solvers.structured import Atom

__all__ = [
    "Answer",
    "Atom",
    "AtomSet",
    "Birkhoff",
    "Box",
    "Custom",
    "Dictionary",
    "GroupBall",
    "Inexact",
    "KSparse",
    "L1Ball",
    "L2Ball",
    "LInfBall",
    "Lazy",
    "NuclearBall",
    "PSDTrace",
    "Product",
    "SignedCoordinates",
    "Simplex",
    "Symmetric",
    "Wrapper",
    "as_atoms",
]
