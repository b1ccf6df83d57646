package pod

import (
	"strconv"
	"time"

	"monoplane.dev/apiserver/table"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

const none = "<none>"

// Table shows pods as kubectl's users know them (CLI-3).
type Table struct{}

// Columns returns the columns.
func (Table) Columns() []table.Column {
	return []table.Column{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the pod, unique within its namespace."},
		{Name: "Ready", Type: "string", Description: "Containers that are ready, of all that count."},
		{Name: "Status", Type: "string", Description: "What the pod is doing, or why it is not."},
		{Name: "Restarts", Type: "string", Description: "How often containers were restarted, and when last."},
		{Name: "Age", Type: "string", Description: "Time since the pod was created."},
		{Name: "IP", Type: "string", Priority: 1, Description: "First address of the pod."},
		{Name: "Node", Type: "string", Priority: 1, Description: "Node that the pod is bound to."},
		{Name: "Nominated Node", Type: "string", Priority: 1, Description: "Node on which room is being made for the pod."},
		{Name: "Readiness Gates", Type: "string", Priority: 1, Description: "Readiness gates that are true, of all."},
	}
}

// Cells returns the cells of one pod.
func (Table) Cells(o object.Object, now time.Time) []any {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return make([]any, 9)
	}
	s := summarize(p)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts != 0 && s.lastRestart != nil {
		restarts += " (" + table.Age(s.lastRestart, now) + " ago)"
	}
	return []any{
		p.GetMetadata().GetName(), strconv.Itoa(s.ready) + "/" + strconv.Itoa(s.total), s.status, restarts,
		table.Age(p.GetMetadata().GetCreationTimestamp(), now),
		orNone(podIP(p)), orNone(p.GetSpec().GetNodeName()), orNone(p.GetStatus().GetNominatedNodeName()), gates(p),
	}
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

func gates(p *corev1.Pod) string {
	all := p.GetSpec().GetReadinessGates()
	if len(all) == 0 {
		return none
	}
	open := 0
	for _, g := range all {
		if condition(p, g.GetConditionType()).GetStatus() == "True" {
			open++
		}
	}
	return strconv.Itoa(open) + "/" + strconv.Itoa(len(all))
}
