package tokens

import (
	"encoding/json"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// The paths of the documents by which others verify tokens.
const (
	// ConfigurationPath is that of the OpenID configuration.
	ConfigurationPath = "/.well-known/openid-configuration"
	// KeysPath is that of the keys.
	KeysPath = "/openid/v1/jwks"
	// KeysType is the media type of the keys.
	KeysType = "application/jwk-set+json"
)

// Configuration returns the OpenID configuration for clients that know the server by base, such as
// "https://127.0.0.1:6443".
func (a *Authority) Configuration(base string) ([]byte, error) {
	return json.Marshal(struct {
		Issuer     string   `json:"issuer"`
		KeysURL    string   `json:"jwks_uri"`
		Responses  []string `json:"response_types_supported"`
		Subjects   []string `json:"subject_types_supported"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}{a.cfg.Issuer, base + KeysPath, []string{"id_token"}, []string{"public"}, []string{string(jose.ES256)}})
}

// Keys returns the keys with which tokens are verified, as a JSON Web Key Set. It has no private part.
func (a *Authority) Keys() ([]byte, error) {
	set := jose.JSONWebKeySet{}
	for _, key := range a.cfg.Keys.Verifying() {
		id, err := idOf(key)
		if err != nil {
			return nil, err
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"})
	}
	text, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("encode the keys: %w", err)
	}
	return text, nil
}
