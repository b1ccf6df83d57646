//go:build !kubernetes

package oracle

import (
	"flag"
	"fmt"
	"sync"
	"testing"
)

// The tests ask of what is recorded, and nothing else.
var (
	seed  = pointer(uint64(recordedSeed))
	count = pointer(recordedCount)
)

func pointer[T any](v T) *T { return &v }

// heard are the answers that were read from files, by topic, and those of them that a test has heard.
var heard = struct {
	sync.Mutex
	answers, asked map[string]map[string]string
}{answers: map[string]map[string]string{}, asked: map[string]map[string]string{}}

func answerTo(t testing.TB, topic string, question []any) []byte {
	t.Helper()
	heard.Lock()
	defer heard.Unlock()
	if heard.answers[topic] == nil {
		answers, err := readAnswers(topic)
		if err != nil {
			t.Fatalf("no answers are recorded, see make oracle: %v", err)
		}
		heard.answers[topic], heard.asked[topic] = answers, map[string]string{}
	}
	key := keyOf(t, question)
	answer, ok := heard.answers[topic][key]
	if !ok {
		t.Fatalf("%s: no answer to this question is recorded, see make oracle: %.2000s", topic, fmt.Sprint(question...))
	}
	heard.asked[topic][key] = answer
	return []byte(answer)
}

func begin() { flag.Parse() }

// end says, after a run of all tests, which answers nobody has asked for: they prove nothing.
func end() error {
	if !wholeRun() {
		return nil
	}
	topics, err := recordedTopics()
	if err != nil {
		return err
	}
	for _, topic := range topics {
		answers, err := readAnswers(topic)
		if err != nil {
			return err
		}
		if n := len(answers) - len(heard.asked[topic]); n > 0 {
			return fmt.Errorf("%s: no test asks for %d of the %d answers, see make oracle", topic, n, len(answers))
		}
	}
	return nil
}

// kindsOfVersions are none without Kubernetes' conversions between versions.
func kindsOfVersions() []owned { return nil }
