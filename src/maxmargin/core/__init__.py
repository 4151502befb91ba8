"""The contracts: problem, oracle, cutting planes, certificate, result, stopping."""
