package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	schedulingv1 "monoplane.dev/api/scheduling/v1"
	"monoplane.dev/client/progress"
	"monoplane.dev/codec"
	"monoplane.dev/codec/value"
)

// whyOutputs are the forms in which a review can be shown.
var whyOutputs = map[string]func(io.Writer, *schedulingv1.PlacementReview) error{
	"table": showWhy,
	"json": func(w io.Writer, r *schedulingv1.PlacementReview) error {
		var b bytes.Buffer
		if err := json.Indent(&b, codec.AppendObject(nil, r), "", "    "); err != nil {
			return err
		}
		b.WriteByte('\n')
		_, err := w.Write(b.Bytes())
		return err
	},
	"yaml": func(w io.Writer, r *schedulingv1.PlacementReview) error {
		text, err := yaml.JSONToYAML(codec.AppendObject(nil, r))
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	},
}

// showWhy prints the sentence, what else is worth knowing, and a line for each node.
func showWhy(w io.Writer, r *schedulingv1.PlacementReview) error {
	st := r.GetStatus()
	var b strings.Builder
	b.WriteString(st.GetMessage() + "\n")
	if q := st.GetQueue(); q != nil {
		b.WriteString(queueLine(q) + "\n")
	}
	if p := st.GetPreemption(); p != nil {
		b.WriteString(preemptionLine(p) + "\n")
	}
	if len(st.GetNodes()) == 0 {
		_, err := io.WriteString(w, b.String())
		return err
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NODE\tFITS\tSCORE\tWHY")
	for _, n := range st.GetNodes() {
		if n.GetFits() {
			fmt.Fprintf(t, "%s\tyes\t%d\t%s\n", n.GetName(), n.GetTotal(), scores(n.GetScores()))
		} else {
			fmt.Fprintf(t, "%s\tno\t-\t%s\n", n.GetName(), refusals(n))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// showProgress prints a report on a workload.
func showProgress(w io.Writer, output string, r *progress.Report) error {
	out := []byte(r.String())
	var err error
	switch output {
	case "json":
		if out, err = json.MarshalIndent(r, "", "    "); err == nil {
			out = append(out, '\n')
		}
	case "yaml":
		out, err = yaml.Marshal(r)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

func queueLine(q *schedulingv1.PlacementQueue) string {
	line := fmt.Sprintf("Queue: %s, tried %d times", q.GetState(), q.GetAttempts())
	if q.GetAttempts() == 1 {
		line = fmt.Sprintf("Queue: %s, tried once", q.GetState())
	}
	if t := q.GetLastFailure(); t != nil {
		line += ", last at " + value.GoMicroTime(t).Format(time.RFC3339)
	}
	if t := q.GetNextTry(); t != nil {
		line += ", again at " + value.GoMicroTime(t).Format(time.RFC3339) + " at the latest"
	}
	if len(q.GetWaitsFor()) > 0 {
		line += "; refused by " + strings.Join(q.GetWaitsFor(), ", ")
	}
	return line
}

func preemptionLine(p *schedulingv1.PlacementPreemption) string {
	switch gone := strings.Join(p.GetVictims(), ", "); {
	case p.GetBegun() && gone == "":
		return "Preemption: room is kept on " + p.GetNodeName()
	case p.GetBegun():
		return "Preemption: room is kept on " + p.GetNodeName() + ", when these are gone: " + gone
	default:
		return "Preemption: would remove from " + p.GetNodeName() + ": " + gone
	}
}

// refusals words who refuses a node and why, whoever comes first to the decision first.
func refusals(n *schedulingv1.PlacementNode) string {
	texts := []string{refusal(n.GetRefusedBy())}
	for _, r := range n.GetAlsoRefusedBy() {
		texts = append(texts, refusal(r))
	}
	return strings.Join(texts, "; ")
}

// refusal words why a node does not fit.
func refusal(r *schedulingv1.PlacementRefusal) string {
	text := strings.Join(r.GetReasons(), ", ")
	if r.GetPlugin() != "" {
		text = r.GetPlugin() + ": " + text
	}
	return text
}

// scores words the scores of a node as a sum.
func scores(list []*schedulingv1.PlacementScore) string {
	var texts []string
	for _, s := range list {
		text := fmt.Sprintf("%s %d", s.GetPlugin(), s.GetScore())
		if s.GetWeight() != 1 {
			text += fmt.Sprintf(" x %d", s.GetWeight())
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " + ")
}
