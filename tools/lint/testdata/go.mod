module monoplane.dev

go 1.26.0
