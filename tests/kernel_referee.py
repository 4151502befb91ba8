"""The dual of a kernel structural SVM with every output written out, solved by clarabel.

Sees a problem through ``outputs``, ``part``, ``label`` and ``loss``, and kernels as functions of
two single things; nothing of maxmargin takes part.
"""

import clarabel
import numpy as np
import scipy.sparse as sp


def cuts(problem, X, Y):
    """(example, output, loss) of every output of every example."""
    return [(i, y, problem.loss(Y[i], y)) for i in range(len(Y)) for y in problem.outputs(X[i])]


def plane_gram(problem, X, Y, kernel):
    """Inner products of all differences between a truth and an output."""
    listed = cuts(problem, X, Y)

    def atom(i, y):
        return problem.part(X[i], y), problem.label(y)

    signed = [((atom(i, Y[i]), 1.0), (atom(i, y), -1.0)) for i, y, _ in listed]
    gram = np.zeros((len(listed), len(listed)))
    for a, ones in enumerate(signed):
        for b, others in enumerate(signed[: a + 1]):
            total = sum(s * t * kernel(p, q) for p, s in ones for q, t in others)
            gram[a, b] = gram[b, a] = total
    return gram, np.array([loss for *_, loss in listed]), np.array([i for i, *_ in listed])


def dual_optimum(gram, losses, blocks, C):
    """Largest ``losses @ a - a @ gram @ a / 2`` with ``a >= 0`` and sums of blocks at most cost."""
    n = len(losses)
    sums = sp.csr_array((np.ones(n), (blocks, np.arange(n))), shape=(len(C), n))
    A = sp.csc_matrix(sp.vstack([-sp.eye_array(n), sums]))
    b = np.r_[np.zeros(n), C]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    P = sp.triu(sp.csc_matrix(gram + 1e-12 * np.eye(n)), format="csc")
    cones = [clarabel.NonnegativeConeT(len(b))]
    found = clarabel.DefaultSolver(P, -losses, A, b, cones, settings).solve()
    return -found.obj_val


def optimum(problem, X, Y, C, kernel, rescaling="margin"):
    """The same, from the problem; ``kernel(p, q)`` of two (part, label) pairs.

    With slack rescaling the loss multiplies all of a plane.
    """
    gram, losses, blocks = plane_gram(problem, X, Y, kernel)
    if rescaling == "slack":
        gram = losses[:, None] * gram * losses
    return dual_optimum(gram, losses, blocks, C)
