package hostinfo

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NodeName makes a valid node name of the machine's host name, as kubelet does: in lower case.
func NodeName(hostname func() (string, error)) (string, error) {
	name, err := hostname()
	if err != nil {
		return "", fmt.Errorf("no node name was given and the machine's name is unknown: %w", err)
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("the machine's name %q cannot name a node (%s); give another with --node-name", name,
			problems[0])
	}
	return name, nil
}
