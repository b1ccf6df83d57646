package authn

import (
	"net/http"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/gate"
	"monoplane.dev/codec"
)

// Authenticate returns a request with its user in the context, or answers 401 with a Status and returns nil. Who asks
// to act as somebody else, and may not, gets 403. It comes before everything.
func (a *Authenticator) Authenticate(w http.ResponseWriter, r *http.Request) *http.Request {
	u, err := a.user(r.Context(), r.TLS, r.Header.Values("Authorization"))
	if err == nil && u == nil && !a.isOpen(r.URL.Path) {
		err = unauthorized("no client certificate and no bearer token")
	}
	if err != nil {
		gate.Anonymous(r.Context(), w.Header())
		refuse(w, r, apierrors.From(err))
		return nil
	}
	if u == nil {
		gate.Anonymous(r.Context(), w.Header())
		u = anonymous()
	} else {
		gate.From(r.Context()).Authenticated()
	}
	if u, err = a.acting(r.Context(), u, r.Header); err != nil {
		refuse(w, r, apierrors.From(err))
		return nil
	}
	r = r.WithContext(WithUser(r.Context(), u))
	if len(r.Header["Authorization"]) > 0 || asksToAct(r.Header) {
		r.Header = r.Header.Clone()
		r.Header.Del("Authorization")
		withoutWish(r.Header)
	}
	return r
}

// discoveryType is in what clients accept who ask for the list of resources. They show an error's text to their user
// when it is one, and "unknown" for a Status, which they cannot read there.
const discoveryType = "g=apidiscovery.k8s.io"

func refuse(w http.ResponseWriter, r *http.Request, e *apierrors.Error) {
	contentType, body := "application/json", append(codec.AppendObject(nil, e.Status()), '\n')
	if strings.Contains(r.Header.Get("Accept"), discoveryType) {
		contentType, body = "text/plain; charset=utf-8", []byte(e.Error()+"\n")
	}
	w.Header().Set("Content-Type", contentType)
	if e.Reason() == apierrors.Unauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(int(e.Status().GetCode()))
	// The client is gone when this fails; there is nobody to tell.
	_, _ = w.Write(body)
}
