package registry

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/google/go-containerregistry/pkg/name"
)

// ReadFile reads what is special about registries from a YAML file:
//
//	registries:
//	  docker.io:
//	    mirrors: [https://mirror.example.com]
//	  registry.example.com:5000:
//	    plainHTTP: true
//	  private.example.com:
//	    caFile: /etc/ssl/private-ca.pem
//
// What it does not know is an error.
func ReadFile(path string) (map[string]Host, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration of registries: %w", err)
	}
	var file struct {
		Registries map[string]Host `json:"registries"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("configuration of registries %s: %w", path, err)
	}
	for host := range file.Registries {
		if _, err := name.NewRegistry(host); err != nil || strings.Contains(host, "/") {
			return nil, fmt.Errorf("configuration of registries %s: %q is no registry; write a host as in names of images, "+
				"such as docker.io or registry.example.com:5000", path, host)
		}
	}
	if _, err := New(Config{Hosts: file.Registries}); err != nil {
		return nil, fmt.Errorf("configuration of registries %s: %w", path, err)
	}
	return file.Registries, nil
}
