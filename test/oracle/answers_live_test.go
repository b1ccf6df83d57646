//go:build kubernetes

package oracle

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/capabilities"
)

var (
	seed      = flag.Uint64("seed", 0, "seed of the random objects; 0 takes the time")
	count     = flag.Int("count", 2000, "number of random objects per test")
	recording = flag.Bool("record", false, "record the answers in testdata, and say what has changed")
)

func begin() {
	flag.Parse()
	if *recording {
		*seed, *count = recordedSeed, recordedCount
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	// Kubernetes runs with --allow-privileged nearly everywhere; Monoplane has no such switch.
	capabilities.Setup(true, 0)
}

// given are the answers of this run, by topic and question.
var given = struct {
	sync.Mutex
	answers map[string]map[string]string
}{answers: map[string]map[string]string{}}

func answerTo(t testing.TB, topic string, question []any) []byte {
	t.Helper()
	function, in := reflect.ValueOf(theirs[topic]), []reflect.Value{reflect.ValueOf(t)}
	if !function.IsValid() {
		t.Fatalf("%s is not in the table theirs", topic)
	}
	if function.Type().NumIn() != 1+len(question) {
		t.Fatalf("%s takes %d parts, the question has %d", topic, function.Type().NumIn()-1, len(question))
	}
	for i, part := range question {
		v := reflect.ValueOf(part)
		if !v.IsValid() {
			v = reflect.Zero(function.Type().In(1 + i))
		}
		in = append(in, v)
	}
	past := keyOf(t, slices.DeleteFunc(slices.Clone(question), isCourse))
	key := keyOf(t, question)
	answer, err := json.Marshal(function.Call(in)[0].Interface())
	if err != nil {
		t.Fatalf("%s: %v", topic, err)
	}
	if keyOf(t, slices.DeleteFunc(slices.Clone(question), isCourse)) != past {
		t.Fatalf("%s: Kubernetes' code changed the question", topic)
	}
	if *recording {
		given.Lock()
		defer given.Unlock()
		if given.answers[topic] == nil {
			given.answers[topic] = map[string]string{}
		}
		if before, ok := given.answers[topic][key]; ok && before != string(answer) {
			t.Errorf("%s: the same question is answered in two ways:\n%s\n%s", topic, before, answer)
		}
		given.answers[topic][key] = string(answer)
	}
	return answer
}

func isCourse(part any) bool {
	_, ok := part.(*course)
	return ok
}

// end records the answers, and says what is not as it was.
func end() error {
	if !*recording {
		return nil
	}
	if !wholeRun() {
		return errors.New("answers are recorded by a run of all tests")
	}
	var failed error
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		return err
	}
	before, err := recordedTopics()
	if err != nil {
		return err
	}
	for _, topic := range slices.Sorted(maps.Keys(given.answers)) {
		is := given.answers[topic]
		was, err := readAnswers(topic)
		if err == nil && maps.Equal(was, is) {
			continue
		}
		changed, added := 0, 0
		for _, key := range slices.Sorted(maps.Keys(is)) {
			switch old, ok := was[key]; {
			case !ok:
				added++
			case old != is[key]:
				if changed++; changed <= 3 {
					fmt.Printf("%s, question %s:\n  was %.600s\n  is  %.600s\n", topic, key, old, is[key])
				}
			}
		}
		fmt.Printf("%s: %d answers, %d changed, %d to new questions, %d questions gone\n", topic, len(is), changed, added,
			len(was)+added-len(is))
		failed = errors.Join(failed, writeAnswers(topic, is))
	}
	for _, topic := range before {
		if given.answers[topic] == nil {
			fmt.Printf("%s: gone\n", topic)
			failed = errors.Join(failed, os.Remove(recordOf(topic)))
		}
	}
	for topic := range theirs {
		if given.answers[topic] == nil {
			failed = errors.Join(failed, fmt.Errorf("%s: no test asks of it", topic))
		}
	}
	return failed
}

func writeAnswers(topic string, answers map[string]string) error {
	var text bytes.Buffer
	z, err := gzip.NewWriterLevel(&text, gzip.BestCompression)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(answers)) {
		fmt.Fprintln(z, key, answers[key])
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(recordOf(topic), text.Bytes(), 0o644)
}
