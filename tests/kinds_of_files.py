"""A small file of each format and task that the command line reads."""

import numpy as np

RANDOM = np.random.default_rng(0)


def _rows(label):
    return "".join(
        f"{label(i)} " + " ".join(f"{j}:{RANDOM.normal() + i % 2:.3f}" for j in (1, 2, 3)) + "\n"
        for i in range(30)
    )


def _sequences():
    lines = []
    for i in range(1, 31):
        for _ in range(3):
            tag = int(RANDOM.integers(1, 10))
            lines.append(f"{tag} qid:{i} {tag}:1 {20 + RANDOM.integers(1, 40)}:1\n")
    return "".join(lines)


FILES = {
    "libsvm (classification)": _rows(lambda i: i % 2),
    "libsvm (regression)": _rows(lambda i: i % 2 + i / 100),
    "libsvm (multilabel)": _rows(lambda i: "1,2" if i % 2 else "2"),
    "svm-hmm (tagging)": _sequences(),
    "letor (ranking)": "".join(
        f"{i % 3} qid:{i // 5} 1:{RANDOM.random():.2f} 2:{i % 3 + RANDOM.random():.2f} #docid={i}\n"
        for i in range(30)
    ),
    "columns (tagging)": "He PRP B-NP\nis VBZ B-VP\n\nThe DT B-NP\ndog NN I-NP\nis VBZ B-VP\n\n",
    "conllu (dependencies)": "1\tA\ta\tDET\tDT\t_\t2\tdet\t_\t_\n"
    "2\tcat\tc\tNOUN\tNN\t_\t3\tn\t_\t_\n3\tis\tbe\tVERB\tVBZ\t_\t0\troot\t_\t_\n\n",
    "penn (parsing)": "(S (NP (DT a) (NN cat)) (VP (VBZ is)))\n(S (NP (DT the)) (VP (VBZ is)))\n",
}
