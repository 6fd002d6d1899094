# The protocol with programs under test, and the adapters that speak it.
ctxconf_script_test(protocol_test conformance/testee/protocol_test.py ${PROJECT_SOURCE_DIR})
