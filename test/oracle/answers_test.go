package oracle

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// The random objects of which the answers are recorded.
const (
	recordedSeed  = 1
	recordedCount = 400
)

// ask returns what Kubernetes' own code answers to a question: now, when the tests are built with it (tag kubernetes),
// or when its answers were recorded. The topic names the function that is asked, in the table theirs.
//
// An answer is a value of JSON, and depends on nothing but the question. The same question has one answer, however
// often and by whichever test it is asked.
func ask[A any](t testing.TB, topic string, question ...any) (answer A) {
	t.Helper()
	if err := json.Unmarshal(answerTo(t, topic, question), &answer); err != nil {
		t.Fatalf("%s: %v", topic, err)
	}
	return answer
}

// course is a part of questions that are each to be understood after all those that were asked before it, such as by a
// controller that remembers them.
type course struct {
	past string
	// theirs is what Kubernetes' code remembers; nothing else looks at it.
	theirs any //nolint:unused // by what records the answers only
}

// keyOf is what a question is known by.
func keyOf(t testing.TB, question []any) string {
	t.Helper()
	h := sha256.New()
	var of *course
	for _, part := range question {
		if c, ok := part.(*course); ok {
			of = c
			_, _ = io.WriteString(h, c.past)
			continue
		}
		if err := json.NewEncoder(h).Encode(part); err != nil {
			t.Fatalf("%T: %v", part, err)
		}
	}
	key := base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:6])
	if of != nil {
		of.past = key
	}
	return key
}

// random is where the random objects of a test come from.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	t.Logf("run again with -seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 1))
}

func TestMain(m *testing.M) {
	time.Local = time.UTC // questions and answers write times, and schedules follow the clock on the wall
	begin()
	code := m.Run()
	if code == 0 {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
