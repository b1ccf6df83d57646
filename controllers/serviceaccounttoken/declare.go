package serviceaccounttoken

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller. Of Secrets it sees and changes only those that are there to hold a token.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "serviceaccount-token",
		Grants: []rights.Grant{
			{Verbs: rights.Read, Resources: "serviceaccounts"},
			{Verbs: "list watch update delete " + rights.ShowTokens, Resources: rights.Secrets},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Tokens: e.Tokens, RootCA: e.RootCA, Logger: e.Logger})
		},
	}
}
