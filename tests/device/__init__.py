"""`make test-device`: what only a real GPU can show, in under three minutes and without changing any of its settings.

Needs the product's own dependencies and nothing else: no network, no pytest.
"""
