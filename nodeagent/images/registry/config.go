package registry

import "time"

// Config says how registries are reached. The zero value reaches each by its name over HTTPS, without credentials.
type Config struct {
	// Hosts holds what is special about registries, by their name and port as in references, such as docker.io or
	// registry.example.com:5000.
	Hosts map[string]Host
	// DockerConfig makes credentials that nobody gave come from the docker configuration of this user ($DOCKER_CONFIG,
	// ~/.docker/config.json, $REGISTRY_AUTH_FILE) and the credential helpers that it names.
	DockerConfig bool
	// Stall is how long a registry may send next to nothing before it is given up; 30 s by default.
	Stall time.Duration
	// Attempts is how often a request is tried that brings nothing; 5 by default.
	Attempts int
}

// Host is what is special about a registry.
type Host struct {
	// Mirrors are asked first, in their order, such as https://mirror.example.com or http://10.0.0.5:5000; the registry
	// itself is asked when all of them failed. A path, as in https://harbor.example.com/hub, comes before the name of
	// the repository. A mirror is asked with the certificates and the credentials of its own entry; credentials for the
	// registry are not sent to it.
	Mirrors []string `json:"mirrors,omitempty"`
	// PlainHTTP allows HTTP where HTTPS fails.
	PlainHTTP bool `json:"plainHTTP,omitempty"`
	// CAFile holds certificates, in PEM, of authorities that are trusted for this registry beside the system's.
	CAFile string `json:"caFile,omitempty"`
	// Auth is whom the registry is asked as by all who bring no credentials of their own.
	Auth Auth `json:"auth,omitzero"`
}

// Auth is whom a registry is asked as, in the forms that CRI knows. The zero value is nobody.
type Auth struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	// Auth is base64 of USER:PASSWORD, as docker's configuration has it; used if Username is empty.
	Auth string `json:"auth,omitempty"`
	// IdentityToken is exchanged for an access token; RegistryToken is one.
	IdentityToken string `json:"identityToken,omitempty"`
	RegistryToken string `json:"registryToken,omitempty"`
}
