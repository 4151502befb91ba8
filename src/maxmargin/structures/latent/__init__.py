"""The class of a bag of instances, one of which shows it: a latent variable."""
