package store

import "strconv"

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func second[T any](_ T, err error) error { return err }
