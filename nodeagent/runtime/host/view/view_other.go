//go:build !linux

package view
