package configfile

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"monoplane.dev/client"
	"monoplane.dev/scheduler/framework"
)

// Factory makes a plugin. It is called once when a configuration is read, to check it, with a client that reaches no
// server, and once for each scheduler that starts; it should do no more than make the plugin, and refuse bad
// arguments. Errors that begin with the field, such as "args.limit: -1 is negative", are reported with its line;
// joined errors one by one.
type Factory func(args *Args, c *client.Client) (framework.Plugin, error)

// Registry holds factories by the names of their plugins.
type Registry map[string]Factory

// Args are a plugin's arguments as the configuration has them.
type Args struct {
	plugin string
	report *report
	// node is nil when there are none; path is where they are.
	node *yaml.Node
	path string
	// ours says that they are of Kubernetes' own kind and version.
	ours bool
	read bool
}

// Decode reads the arguments into a struct by the json names of its fields, strictly, and leaves alone what is not
// set. The apiVersion and kind that may stand there are not for the plugin. The error should be returned as it is.
func (a *Args) Decode(into any) error {
	a.read = true
	if a.node == nil {
		return nil
	}
	r := newReport(a.report.File, a.report.Root)
	n := *a.node
	if n.Kind == yaml.MappingNode {
		n.Content = nil
		for i := 0; i+1 < len(a.node.Content); i += 2 {
			key, value := a.node.Content[i], a.node.Content[i+1]
			switch {
			case key.Value == "kind" && value.Value != a.plugin+"Args":
				r.At(key.Line, a.path+".kind", "is %q, expected %sArgs", value.Value, a.plugin)
			case key.Value == "apiVersion" && a.ours && value.Value != apiVersion:
				r.At(key.Line, a.path+".apiVersion", "is %q, expected %s", value.Value, apiVersion)
			case key.Value != "kind" && key.Value != "apiVersion":
				n.Content = append(n.Content, key, value)
			}
		}
	}
	r.Decode(&n, a.path, into)
	return r.Err()
}

// make makes the plugin and reports what is wrong with its arguments. at is where it is configured or enabled.
func (r *report) make(f Factory, args *Args, at string, c *client.Client) framework.Plugin {
	p, err := f(args, c)
	switch {
	case err != nil:
		r.refused(err, at)
		return nil
	case args.node != nil && len(args.node.Content) > 0 && !args.read:
		r.Add(args.path, "plugin %s takes no arguments", args.plugin)
		return nil
	case p == nil || p.Name() != args.plugin:
		r.Add(at, "the factory of plugin %s made something else", args.plugin)
		return nil
	}
	return p
}

// refused reports what a factory said.
func (r *report) refused(err error, at string) {
	for _, e := range leaves(err) {
		if list, ok := e.(Faults); ok { //nolint:errorlint // Decode's error is returned as it is
			r.Faults = append(r.Faults, list...)
			continue
		}
		field, text, ok := strings.Cut(e.Error(), ": ")
		if ok && strings.HasPrefix(field, "args") && !strings.Contains(field, " ") {
			r.Add(at+"."+field, "%s", text)
		} else {
			r.Add(at, "%s", e.Error())
		}
	}
}
