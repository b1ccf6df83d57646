package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The confirmation is a word of the moment: what outlives the command cannot give it.
//
// spec: SAFE-5
func TestConfirmationIsNotASetting(t *testing.T) {
	if cfg, _, err := upConfig(t, "--confirm-original-dead"); err != nil || !cfg.ConfirmOriginalDead {
		t.Errorf("the flag: %v, %v", cfg.ConfirmOriginalDead, err)
	}
	if cfg, _, err := upConfig(t); err != nil || cfg.ConfirmOriginalDead {
		t.Errorf("without the flag: %v, %v", cfg.ConfirmOriginalDead, err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("confirm-original-dead: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"up", "--runtime", "fake"}, {"snapshot", "restore", file}} {
		args := append(command, "--data-dir", filepath.Join(dir, "data"))
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), programName, append(args, "--config", file), &stdout, &stderr); code != 1 ||
			!strings.Contains(stderr.String(), "for the command line only") {
			t.Errorf("%v with a file: code %d, %s", command, code, &stderr)
		}
		t.Setenv("MONOPLANE_CONFIRM_ORIGINAL_DEAD", "true")
		stderr.Reset()
		if code := run(t.Context(), programName, args, &stdout, &stderr); code != 1 ||
			!strings.Contains(stderr.String(), "for the command line only") {
			t.Errorf("%v with a variable: code %d, %s", command, code, &stderr)
		}
		if err := os.Unsetenv("MONOPLANE_CONFIRM_ORIGINAL_DEAD"); err != nil {
			t.Fatal(err)
		}
	}
}

// Nobody is shown to keep a cluster where others can write.
func TestNoExampleIsInASharedDirectory(t *testing.T) {
	shared := regexp.MustCompile(`(^|[^\w.])/(tmp|var/tmp|dev/shm)(/|\b)`)
	check := func(where, text string) {
		for line := range strings.Lines(text) {
			if shared.MatchString(line) {
				t.Errorf("%s: %s", where, line)
			}
		}
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		check("monoplane "+cmd.Name(), cmd.Long+"\n"+cmd.Example+"\n"+cmd.UsageString())
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand(programName, &bytes.Buffer{}, &bytes.Buffer{}))
	if !shared.MatchString("  monoplane up --data-dir /tmp/c1") {
		t.Error("the check finds nothing")
	}
	texts := []string{"README.md", "CONTRIBUTING.md", "SCOPE.md"}
	for _, pattern := range []string{"docs/*.md", "examples/*", "examples/*/*"} {
		found, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range found {
			rel, err := filepath.Rel(filepath.Join("..", ".."), path)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, rel)
		}
	}
	for _, name := range texts {
		path := filepath.Join("..", "..", name)
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		check(name, string(text))
	}
}
