//go:build !linux

package main

import "os"

func agentRoom(string) error { return nil }

func (d *doctor) machine() {}

func isStopped(int) bool { return false }

func lockOwner(*os.File) int { return 0 }

func portOwner(string) int { return 0 }
