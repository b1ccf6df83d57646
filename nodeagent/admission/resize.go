package admission

import corev1 "monoplane.dev/api/core/v1"

// DecideResize decides whether a pod that was taken may have what r.Pod asks for now. What else the node holds for the
// pod does not count: r.Others are the other pods. One on which the system depends gets room from less important ones
// here too. What is refused may be granted later, when there is room. spec: OBJ-10
func DecideResize(r Request) Decision {
	d := decide(r)
	if d.Refused != nil {
		return Decision{Refused: d.Refused}
	}
	if d.Wait {
		lacks := lacking(&r)
		d.Refused = lacks[0].refusal()
	}
	return d
}

// Increases reports whether a pod asks for more cpu or memory than another state of it.
func Increases(now, was *corev1.Pod) bool { return increases(now.GetSpec(), was.GetSpec()) }
