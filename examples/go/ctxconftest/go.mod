module example.com/ctxconftest

go 1.19
