package registry

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// authenticator returns whom a repository of a host is asked as: whom a caller gave, else whom the host's entry in the
// configuration says, else whom the docker configuration says, if it counts.
func (c *Client) authenticator(ctx context.Context, host, path string, auth *Auth) (authn.Authenticator, error) {
	if auth == nil || *auth == (Auth{}) {
		own := c.cfg.Hosts[host].Auth
		auth = &own
	}
	if *auth != (Auth{}) {
		return authn.FromConfig(authn.AuthConfig{
			Username: auth.Username, Password: auth.Password, Auth: auth.Auth,
			IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken,
		}), nil
	}
	if !c.cfg.DockerConfig {
		return authn.Anonymous, nil
	}
	repo, err := name.NewRepository(host + "/" + path)
	if err != nil {
		return nil, err
	}
	who, err := authn.Resolve(ctx, authn.DefaultKeychain, repo)
	if err != nil {
		return nil, fmt.Errorf("credentials for %s in the docker configuration: %w", host, err)
	}
	return who, nil
}
