package registry

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// authenticator returns whom a registry is asked as.
func (c *Client) authenticator(ctx context.Context, ref Reference, auth *Auth) (authn.Authenticator, error) {
	if auth != nil && *auth != (Auth{}) {
		return authn.FromConfig(authn.AuthConfig{
			Username: auth.Username, Password: auth.Password, Auth: auth.Auth,
			IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken,
		}), nil
	}
	if !c.cfg.DockerConfig {
		return authn.Anonymous, nil
	}
	repo, err := name.NewRepository(ref.Repository)
	if err != nil {
		return nil, err
	}
	who, err := authn.Resolve(ctx, authn.DefaultKeychain, repo)
	if err != nil {
		return nil, fmt.Errorf("credentials for %s in the docker configuration: %w", ref.host(), err)
	}
	return who, nil
}
