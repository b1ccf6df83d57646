package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// env is what all benchmarks share.
type env struct {
	dir    string
	quick  bool
	binary string
	dirs   int
}

// tempDir returns a new directory.
func (e *env) tempDir() (string, error) {
	e.dirs++
	dir := filepath.Join(e.dir, fmt.Sprint(e.dirs))
	return dir, os.Mkdir(dir, 0o700)
}

// size returns full, or a twentieth of it in a quick run.
func (e *env) size(full int) int {
	if e.quick {
		return max(full/20, 1)
	}
	return full
}

// row is one line of the table.
type row struct {
	name     string
	measured string
	limit    string // what it is compared with, measured in the same run
	ratio    float64
	target   string
	met      bool
}

func (e *env) header() {
	fmt.Printf("%-52s %14s  %-26s %8s  %-14s\n", "measure", "Monoplane", "limit in this run", "ratio", "target")
	fmt.Println(strings.Repeat("-", 122))
}

func (e *env) print(r row) {
	ratio, mark := "", "met"
	if r.ratio != 0 {
		ratio = fmt.Sprintf("%.2f", r.ratio)
	}
	if !r.met {
		mark = "MISSED"
	}
	if r.target == "" {
		mark = ""
	}
	fmt.Printf("%-52s %14s  %-26s %8s  %-14s %s\n", r.name, r.measured, r.limit, ratio, r.target, mark)
}

// atLeast prints a rate that should reach a share of a limiting rate.
func (e *env) atLeast(name string, rate float64, limitName string, limit, share float64) {
	e.print(row{
		name: name, measured: perSecond(rate), limit: limitName + " " + perSecond(limit), ratio: rate / limit,
		target: fmt.Sprintf(">= %.2f", share), met: rate/limit >= share,
	})
}

func perSecond(rate float64) string { return fmt.Sprintf("%.0f/s", rate) }

// processor names the machine's processor, as far as it tells.
func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, " \t:"))
		}
	}
	return "unknown processor"
}
