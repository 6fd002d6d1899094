pytest_plugins = ["pytest_ctxconf"]
