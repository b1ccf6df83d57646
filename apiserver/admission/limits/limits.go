// Package limits is what LimitRanges do: they give containers that ask for nothing requests and limits, and refuse
// pods and claims that ask for too little, for too much, or for a limit that is too far from the request.
//
// It guarantees the decisions and the words of Kubernetes' admission, which test/oracle compares over random pods.
package limits

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	container = "Container"
	wholePod  = "Pod"
	claim     = "PersistentVolumeClaim"

	// annotation says on a pod what it was given.
	annotation = "kubernetes.io/limit-ranger"
)

// Concerned says whether ranges judge a write: of a new pod or claim, of a claim that is changed, and of a pod that is
// resized. What is being deleted may go as it is.
func Concerned(w registry.Write) bool {
	if w.Live != nil && w.Live.GetMetadata().GetDeletionTimestamp() != nil {
		return false
	}
	switch w.Next.(type) {
	case *corev1.Pod:
		return w.Live == nil || w.Subresource == "resize"
	case *corev1.PersistentVolumeClaim:
		return w.Subresource == ""
	}
	return false
}

// Complete gives the containers of a pod the requests and limits that a range has for those without.
func Complete(p *corev1.Pod, r *corev1.LimitRange) {
	requests, limits := map[string]*metav1.Quantity{}, map[string]*metav1.Quantity{}
	for _, item := range r.GetSpec().GetLimits() {
		if item.GetType() == container {
			maps.Copy(requests, item.GetDefaultRequest())
			maps.Copy(limits, item.GetDefault())
		}
	}
	var given []string
	complete := func(list []*corev1.Container, what string) {
		for _, c := range list {
			defaults.Message(&c.Resources)
			var names []string
			if c.Resources.Limits, names = fill(c.Resources.Limits, limits); len(names) > 0 {
				names = []string{strings.Join(names, ", ") + " limit for " + what + " " + c.GetName()}
			}
			var asked []string
			if c.Resources.Requests, asked = fill(c.Resources.Requests, requests); len(asked) > 0 {
				given = append(given, strings.Join(asked, ", ")+" request for "+what+" "+c.GetName())
			}
			given = append(given, names...)
		}
	}
	complete(p.GetSpec().GetContainers(), "container")
	complete(p.GetSpec().GetInitContainers(), "init container")
	if len(given) == 0 {
		return
	}
	notes := maps.Clone(p.Metadata.Annotations)
	if notes == nil {
		notes = make(map[string]string, 1)
	}
	notes[annotation] = "LimitRanger plugin set: " + strings.Join(given, "; ")
	p.Metadata.Annotations = notes
}

// fill adds to amounts what only more has, and returns the names of that, in order.
func fill(amounts, more map[string]*metav1.Quantity) (map[string]*metav1.Quantity, []string) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if _, ok := amounts[name]; ok {
			continue
		}
		if amounts == nil {
			amounts = make(map[string]*metav1.Quantity, len(more))
		}
		amounts[name] = defaults.CloneQuantity(more[name])
		names = append(names, name)
	}
	return amounts, names
}

// Check refuses a pod or a claim that a range does not allow.
func Check(o object.Object, r *corev1.LimitRange) error {
	var faults []string
	for _, item := range r.GetSpec().GetLimits() {
		switch o := o.(type) {
		case *corev1.Pod:
			faults = append(faults, checkPod(o, item)...)
		case *corev1.PersistentVolumeClaim:
			faults = append(faults, checkClaim(o, item)...)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return apierrors.NewForbidden(o.ObjectKind(), o.GetMetadata().GetName(), "%s", together(faults))
}

// together renders what is wrong, each thing once.
func together(faults []string) string {
	var once []string
	for _, fault := range faults {
		if !slices.Contains(once, fault) {
			once = append(once, fault)
		}
	}
	if len(once) == 1 {
		return once[0]
	}
	return "[" + strings.Join(once, ", ") + "]"
}

func checkPod(p *corev1.Pod, item *corev1.LimitRangeItem) (faults []string) {
	switch item.GetType() {
	case container:
		for _, c := range slices.Concat(p.GetSpec().GetContainers(), p.GetSpec().GetInitContainers()) {
			faults = append(faults, asks{
				requests: resources.ListOf(c.GetResources().GetRequests()), limits: resources.ListOf(c.GetResources().GetLimits()),
			}.check(item)...)
		}
	case wholePod:
		faults = asks{
			requests: resources.RequestsForItself(p.GetSpec()), limits: resources.LimitsForItself(p.GetSpec()),
		}.check(item)
	}
	return faults
}

// checkClaim checks what a claim requests: claims have no limits.
func checkClaim(c *corev1.PersistentVolumeClaim, item *corev1.LimitRangeItem) (faults []string) {
	if item.GetType() != claim {
		return nil
	}
	a := asks{requests: resources.ListOf(c.GetSpec().GetResources().GetRequests())}
	for _, l := range amounts(item.GetMin()) {
		faults = append(faults, a.least(claim, l)...)
	}
	for _, l := range amounts(item.GetMax()) {
		request, ok := a.requests.Get(l.Name)
		switch req, _, most := comparable(request, resource.Quantity{}, l.Quantity); {
		case !ok:
			faults = append(faults, fmt.Sprintf("maximum %s usage per %s is %s.  No request is specified",
				l.Name, claim, l.Quantity.String()))
		case req > most:
			faults = append(faults, fmt.Sprintf("maximum %s usage per %s is %s, but request is %s",
				l.Name, claim, l.Quantity.String(), request.String()))
		}
	}
	return faults
}

// asks is what a container, a pod or a claim asks for.
type asks struct{ requests, limits resources.List }

func (a asks) check(item *corev1.LimitRangeItem) (faults []string) {
	for _, l := range amounts(item.GetMin()) {
		faults = append(faults, a.least(item.GetType(), l)...)
	}
	for _, l := range amounts(item.GetMax()) {
		faults = append(faults, a.most(item.GetType(), l)...)
	}
	for _, l := range amounts(item.GetMaxLimitRequestRatio()) {
		faults = append(faults, a.ratio(item.GetType(), l)...)
	}
	return faults
}

// least says what is less than l.
func (a asks) least(of string, l resources.Amount) []string {
	request, requested := a.requests.Get(l.Name)
	limit, limited := a.limits.Get(l.Name)
	req, lim, least := comparable(request, limit, l.Quantity)
	rule := fmt.Sprintf("minimum %s usage per %s is %s", l.Name, of, l.Quantity.String())
	switch {
	case !requested:
		return []string{rule + ".  No request is specified"}
	case req < least:
		return []string{rule + ", but request is " + request.String()}
	case limited && lim < least:
		return []string{rule + ", but limit is " + limit.String()}
	}
	return nil
}

// most says what is more than l.
func (a asks) most(of string, l resources.Amount) []string {
	request, requested := a.requests.Get(l.Name)
	limit, limited := a.limits.Get(l.Name)
	req, lim, most := comparable(request, limit, l.Quantity)
	rule := fmt.Sprintf("maximum %s usage per %s is %s", l.Name, of, l.Quantity.String())
	switch {
	case !limited:
		return []string{rule + ".  No limit is specified"}
	case lim > most:
		return []string{rule + ", but limit is " + limit.String()}
	case requested && req > most:
		return []string{rule + ", but request is " + request.String()}
	}
	return nil
}

// ratio says whether the limit is more than l times the request.
func (a asks) ratio(of string, l resources.Amount) []string {
	request, requested := a.requests.Get(l.Name)
	limit, limited := a.limits.Get(l.Name)
	req, lim, _ := comparable(request, limit, l.Quantity)
	rule := fmt.Sprintf("%s max limit to request ratio per %s is %s", l.Name, of, l.Quantity.String())
	switch {
	case !requested || req == 0:
		return []string{rule + ", but no request is specified or request is 0"}
	case !limited || lim == 0:
		return []string{rule + ", but no limit is specified or limit is 0"}
	}
	ratio := float64(lim) / float64(req)
	compared, most := ratio, float64(l.Quantity.Value())
	if l.Quantity.Value() <= resource.MaxMilliValue {
		compared, most = ratio*1000, float64(l.Quantity.MilliValue())
	}
	if compared > most {
		return []string{rule + fmt.Sprintf(", but provided ratio is %f", ratio)}
	}
	return nil
}

// comparable returns three amounts in one unit: thousandths, unless one is too large for that.
func comparable(request, limit, bound resource.Quantity) (r, l, b int64) {
	r, l, b = request.Value(), limit.Value(), bound.Value()
	if max(r, l, b) <= resource.MaxMilliValue {
		r, l, b = request.MilliValue(), limit.MilliValue(), bound.MilliValue()
	}
	return r, l, b
}

// amounts are those of a field, in the order of their names.
func amounts(field map[string]*metav1.Quantity) []resources.Amount {
	out := make([]resources.Amount, 0, len(field))
	for _, name := range slices.Sorted(maps.Keys(field)) {
		if q, err := value.Quantity(field[name]); err == nil {
			out = append(out, resources.Amount{Name: name, Quantity: q})
		}
	}
	return out
}
