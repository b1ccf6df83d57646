package authn

import (
	"encoding/json"
	"net/http"

	"monoplane.dev/apierrors"
)

// Middleware authenticates HTTP requests and calls next with the user in the context, or answers 401 with
// a Status. Put it in front of everything.
func (a *Authenticator) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := a.user(r.TLS, r.Header.Values("Authorization"))
		if err == nil && u == nil && !a.isOpen(r.URL.Path) {
			err = unauthorized("no client certificate and no bearer token")
		}
		if err != nil {
			refuse(w, apierrors.From(err))
			return
		}
		if u == nil {
			u = anonymous()
		}
		r = r.WithContext(WithUser(r.Context(), u))
		if len(r.Header["Authorization"]) > 0 {
			r.Header = r.Header.Clone()
			r.Header.Del("Authorization")
		}
		next.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, e *apierrors.Error) {
	body, err := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": e.Status().GetMessage(), "reason": e.Status().GetReason(), "code": e.Status().GetCode(),
	})
	if err != nil {
		http.Error(w, e.Error(), int(e.Status().GetCode()))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("WWW-Authenticate", "Bearer")
	w.WriteHeader(int(e.Status().GetCode()))
	// The client is gone when this fails; there is nobody to tell.
	_, _ = w.Write(append(body, '\n'))
}
