package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// env is what all benchmarks share.
type env struct {
	dir    string
	quick  bool
	binary string
	// kubecontrollers is the program that runs Kubernetes' controllers, empty where there is none.
	kubecontrollers string
	// kinds matches the names of the kinds of pods to schedule.
	kinds *regexp.Regexp
	dirs  int
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
	cpu      float64 // processor time, as a multiple of the limit's
	target   string
	met      bool
}

func (e *env) header() {
	fmt.Printf("%-52s %14s  %-26s %8s %6s  %-14s\n", "measure", "Monoplane", "limit in this run", "ratio", "cpu",
		"target")
	fmt.Println(strings.Repeat("-", 129))
}

func (e *env) print(r row) {
	ratio, cpu, mark := "", "", "met"
	if r.ratio != 0 {
		ratio = fmt.Sprintf("%.2f", r.ratio)
	}
	if r.cpu != 0 {
		cpu = fmt.Sprintf("%.2f", r.cpu)
	}
	if !r.met {
		mark = "MISSED"
	}
	if r.target == "" {
		mark = ""
	}
	fmt.Printf("%-52s %14s  %-26s %8s %6s  %-14s %s\n", r.name, r.measured, r.limit, ratio, cpu, r.target, mark)
}

// atLeast prints a rate that should reach a share of a limiting rate; share 0 sets no target.
func (e *env) atLeast(name string, p pair, limitName string, share float64) {
	r := row{
		name: name, measured: perSecond(p.got), limit: limitName + " " + perSecond(p.limit), ratio: p.ratio, cpu: p.cpu,
		met: p.ratio >= share,
	}
	if share > 0 {
		r.target = fmt.Sprintf(">= %.2f", share)
	}
	e.print(r)
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
