"""How fitted models predict: the lower half of the estimators, without scikit-learn."""
