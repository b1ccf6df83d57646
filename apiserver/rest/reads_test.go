package rest_test

import (
	"strconv"
	"strings"
	"testing"
)

// What has no form of a table is not acceptable to who wants nothing else.
func TestNoTable(t *testing.T) {
	f := newFront(t)
	const review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	body := `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`
	f.want(f.do("POST", review, body, "Accept", asTable), 406, "only the following media types are accepted")
	f.want(f.do("POST", review, body, "Accept", asTable+",application/json"), 201, `"kind":"SelfSubjectAccessReview"`)
	f.createPod("a")
	f.want(f.do("POST", pods+"/a/eviction", `{}`, "Accept", asTable), 406)
	f.want(f.do("GET", pods+"/a/status", "", "Accept", asTable), 200, `"kind":"Table"`)
}

// A list at a revision that is to come waits a while, and a watch however long.
func TestFutureRevisions(t *testing.T) {
	f := newFront(t)
	now, err := strconv.Atoi(f.createPod("a").revision(t))
	if err != nil {
		t.Fatal(err)
	}
	next := strconv.Itoa(now + 1)
	w := f.watch(t, pods+"?watch=true&resourceVersion="+next, "application/json")
	done := make(chan answer)
	go func() { done <- f.do("GET", pods+"?resourceVersion="+next, "") }()
	f.createPod("b")
	f.want(<-done, 200, `"name":"b"`)
	last := f.createPod("c")
	if e := w.next(); e.Type != "ADDED" || e.Object.Metadata.Name != "c" {
		t.Errorf("the watch from %s begins with %+v, not with %s", next, e, last.revision(t))
	}
	a := f.want(f.do("GET", pods+"?resourceVersion=99999999", ""), 504, "Timeout: Too large resource version: 99999999",
		`"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1`)
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
}

// Any state is answered whole, as by the watch cache of Kubernetes, whatever the limit.
func TestLimitOfAnyState(t *testing.T) {
	f := newFront(t)
	for _, name := range []string{"a", "b", "c"} {
		f.createPod(name)
	}
	a := f.want(f.do("GET", pods+"?limit=1&resourceVersion=0", ""), 200, `"name":"c"`)
	if strings.Contains(a.body, `"continue"`) {
		t.Errorf("more than all: %s", a.body)
	}
	f.want(f.do("GET", pods+"?limit=1", ""), 200, `"continue":"`, `"remainingItemCount":2`)
}
