# conformance/puppet/: the scripted process
ctxconf_library(ctxconf_puppet SRCS conformance/puppet/script.cc DEPS ctxconf_observe ${json})
ctxconf_test(script_test SRCS conformance/puppet/script_test.cc DEPS ctxconf_puppet)
