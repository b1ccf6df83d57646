// Empty, so that functions without a body may be declared: those of Kubernetes that go:linkname names.
