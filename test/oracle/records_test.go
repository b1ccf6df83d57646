package oracle

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Answers are recorded in one compressed file for each topic, in lines of the key of a question, a space and the
// answer, in the order of the keys.

func recordOf(topic string) string { return filepath.Join("testdata", topic+".gz") }

// recordedTopics are those of which there is a file.
func recordedTopics() ([]string, error) {
	files, err := filepath.Glob(recordOf("*"))
	for i, path := range files {
		files[i] = strings.TrimSuffix(filepath.Base(path), ".gz")
	}
	return files, err
}

func readAnswers(topic string) (map[string]string, error) {
	file, err := os.Open(recordOf(topic))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	z, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", topic, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", topic, err)
	}
	answers := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, answer, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || answers[key] != "" {
			return nil, fmt.Errorf("%s: unexpected line %.100q", topic, line)
		}
		answers[key] = answer
	}
	return answers, nil
}

// wholeRun says whether all tests are run.
func wholeRun() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}

// What compares only with tag kubernetes is named in the package's comment, and nothing else imports Kubernetes.
func TestWhatNeedsKubernetesIsKnown(t *testing.T) {
	comment, err := os.ReadFile("convert.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tagged := bytes.HasPrefix(text, []byte("//go:build kubernetes\n"))
		if !tagged && bytes.Contains(text, []byte("\t\"k8s.io/kubernetes/")) {
			t.Errorf("%s imports Kubernetes", path)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(text, -1) {
			tests++
			if tagged && !bytes.Contains(comment, m[1]) {
				t.Errorf("%s does not run in CI, see the package's comment", m[1])
			}
		}
	}
	if tests < 125 {
		t.Errorf("only %d tests", tests)
	}
}
