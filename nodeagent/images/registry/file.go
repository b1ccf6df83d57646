package registry

import (
	"fmt"
	"io"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/google/go-containerregistry/pkg/name"
)

// ReadFile reads what is special about registries from a YAML file:
//
//	registries:
//	  docker.io:
//	    mirrors: [https://harbor.example.com/hub, https://mirror.example.com]
//	  registry.example.com:5000:
//	    plainHTTP: true
//	  harbor.example.com:
//	    caFile: /etc/ssl/private-ca.pem
//	    auth: {username: robot, password: secret}
//
// What it does not know is an error, and so are credentials in a file that other users may read.
func ReadFile(path string) (map[string]Host, error) {
	f, err := os.Open(path) //nolint:gosec // the user's own file
	if err != nil {
		return nil, fmt.Errorf("configuration of registries: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("configuration of registries: %w", err)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("configuration of registries %s: %w", path, err)
	}
	var file struct {
		Registries map[string]Host `json:"registries"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("configuration of registries %s: %w", path, err)
	}
	for host, h := range file.Registries {
		if _, err := name.NewRegistry(host); err != nil || strings.Contains(host, "/") {
			return nil, fmt.Errorf("configuration of registries %s: %q is no registry; write a host as in names of images, "+
				"such as docker.io or registry.example.com:5000", path, host)
		}
		if h.Auth != (Auth{}) && info.Mode().Perm()&0o077 != 0 {
			return nil, fmt.Errorf("configuration of registries %s has credentials for %s and the mode %#o, so that other "+
				"users may use them; chmod 600 it", path, host, info.Mode().Perm())
		}
	}
	if _, err := New(Config{Hosts: file.Registries}); err != nil {
		return nil, fmt.Errorf("configuration of registries %s: %w", path, err)
	}
	return file.Registries, nil
}
