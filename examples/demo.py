"""Train, watch, and read the certificate: what `make demo` shows."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import maxmargin as mm


def main() -> None:
    """Train on handwritten digits."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)

    print("Training a ten-class SVM on 1,347 handwritten digits (the first run also compiles):")
    model = mm.LinearClassifier(C=1.0, tol=1e-5).set_callbacks(mm.ProgressLine())
    model.fit(X_train, y_train)

    print(f"\nTest accuracy  {model.score(X_test, y_test):.3f}")
    print(f"Certificate    {model.certificate_}")
    print("               No weights whatever can have an objective below the dual value.")

    print("\nA whole path of C, each fit started from the one before:")
    for one in mm.LinearClassifier().path(X_train, y_train, Cs=[0.01, 0.1, 1.0, 10.0]):
        accuracy = one.score(X_test, y_test)
        print(f"  C = {one.C:<5g} test accuracy {accuracy:.3f}   {one.certificate_}")

    print(
        "\nNext: start Python with .venv/bin/python and type\n"
        "    import maxmargin as mm\n"
        "    from sklearn.datasets import load_iris\n"
        "    X, y = load_iris(return_X_y=True)\n"
        "    model = mm.LinearClassifier().fit(X, y)\n"
        "    model.score(X, y), model.certificate_\n"
        "or read README.md."
    )


if __name__ == "__main__":
    main()
