package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"monoplane.dev/apiserver/tokens"
)

// Tokens that say all that a good one does, and that no key of this server has signed as it signs, are nobody's: those
// without a signature, those signed with what everybody knows of the server (its public key, as a secret or as RSA's),
// those of other servers, and those that bring their key along.
func TestForgedTokens(t *testing.T) {
	c := start(t)
	c.account("builder")
	good := c.token()
	if s := c.review(good); !s.GetAuthenticated() {
		t.Fatalf("the token itself: %v", s)
	}
	parts := strings.Split(good, ".")
	header, claims := said(t, good)
	kid, _ := header["kid"].(string)
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := func(algorithm jose.SignatureAlgorithm, key any, options *jose.SignerOptions) string {
		signer, err := jose.NewSigner(jose.SigningKey{
			Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: kid, Algorithm: string(algorithm)},
		}, options)
		if err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		s, err := signer.Sign(payload)
		if err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		text, err := s.CompactSerialize()
		if err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		return text
	}
	mine, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ofRSA, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	published, err := c.bearers.Accounts.(*tokens.Authority).Keys()
	if err != nil {
		t.Fatal(err)
	}
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(published, &keys); err != nil || len(keys.Keys) == 0 {
		t.Fatalf("the published keys: %v", err)
	}
	der, err := x509.MarshalPKIXPublicKey(keys.Keys[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	inPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	other := start(t)
	other.account("builder")

	claims["sub"] = "system:serviceaccount:default:admin"
	none, noneWithKey := encoded(map[string]any{"alg": "none"}), encoded(map[string]any{"alg": "none", "kid": kid})
	for name, token := range map[string]string{
		"no algorithm, no signature":       none + "." + parts[1] + ".",
		"no algorithm, the key's id":       noneWithKey + "." + parts[1] + ".",
		"no algorithm, the good signature": noneWithKey + "." + parts[1] + "." + parts[2],
		"no algorithm, in other letters":   encoded(map[string]any{"alg": "nOnE", "kid": kid}) + "." + parts[1] + ".",
		"no signature":                     parts[0] + "." + parts[1] + ".",
		"half a signature":                 parts[0] + "." + parts[1] + "." + parts[2][:40],
		"other claims":                     parts[0] + "." + encoded(claims) + "." + parts[2],
		"HMAC with the public key, DER":    signed(jose.HS256, der, nil),
		"HMAC with the public key, PEM":    signed(jose.HS256, inPEM, nil),
		"HMAC with the id of the key":      signed(jose.HS256, []byte(kid), nil),
		"RSA":                              signed(jose.RS256, ofRSA, nil),
		"another key":                      signed(jose.ES256, mine, nil),
		"another curve":                    signed(jose.ES384, large, nil),
		"a key that it brings":             signed(jose.ES256, mine, &jose.SignerOptions{EmbedJWK: true}),
		"a key that it brings, and no id":  strings.Replace(good, parts[0], encoded(map[string]any{"alg": "ES256"}), 1),
		"another server":                   other.token(),
		"a header that must be understood": parts[0] + "x." + parts[1] + "." + parts[2],
		"a signature of zeroes":            parts[0] + "." + parts[1] + "." + strings.Repeat("A", 86),
	} {
		t.Run(name, func(t *testing.T) {
			s := c.review(token)
			if s.GetAuthenticated() || s.GetUser() != nil || len(s.GetAudiences()) > 0 {
				t.Errorf("accepted: %v", s)
			}
			for _, secret := range []string{token, parts[2], kid} {
				if strings.Contains(s.GetError(), secret) {
					t.Errorf("the error tells too much: %s", s.GetError())
				}
			}
		})
	}
	if s := c.review(good); !s.GetAuthenticated() {
		t.Errorf("the token itself, afterwards: %v", s)
	}
}
