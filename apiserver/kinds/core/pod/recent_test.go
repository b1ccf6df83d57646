package pod

import "testing"

func TestRecentForgetsWhatIsNotAskedFor(t *testing.T) {
	var r recent[int]
	if r.has(-1) {
		t.Error("an empty set has something")
	}
	r.add(-1)
	r.add(-2)
	for i := range 10 * remembered {
		r.add(i)
		if i%100 == 0 && !r.has(-1) {
			t.Fatalf("forgotten after %d others although it was asked for", i)
		}
	}
	if r.has(-2) {
		t.Error("what nobody asked for is kept for ever")
	}
	if len(r.young)+len(r.old) > 2*remembered {
		t.Errorf("%d values are kept", len(r.young)+len(r.old))
	}
}
