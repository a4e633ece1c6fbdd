{{/* Names and labels: NVIDIA's, so that its release can be upgraded in place (docs/decisions/0700). */}}

{{/* The first characters of a name or label. Takes their number and the text. A cut must not leave an end that none may have. */}}
{{- define "gdp.cut" -}}
{{- regexReplaceAll "[-._]+$" (trunc (index . 0) (index . 1)) "" -}}
{{- end -}}

{{- define "gdp.name" -}}
{{- include "gdp.cut" (list 63 (default "nvidia-device-plugin" .Values.nameOverride)) -}}
{{- end -}}

{{- define "gdp.fullname" -}}
{{- $name := default "nvidia-device-plugin" .Values.nameOverride -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- include "gdp.cut" (list 63 (default $full .Values.fullnameOverride)) -}}
{{- end -}}

{{/* The MPS supervisor's. */}}
{{- define "gdp.mps.fullname" -}}
{{- include "gdp.cut" (list 59 (include "gdp.fullname" .)) -}}-mps
{{- end -}}

{{- define "gdp.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* What the plugin's pods are known by: NVIDIA's two labels, and those that the values select by. */}}
{{- define "gdp.identity" -}}
{{- $override := .Values.selectorLabelsOverride | default dict -}}
{{- dict "app.kubernetes.io/name" (include "gdp.name" .) "app.kubernetes.io/instance" .Release.Name | merge (deepCopy $override) | toYaml -}}
{{- end -}}

{{- define "gdp.selector" -}}
{{- if .Values.selectorLabelsOverride -}}
{{ toYaml .Values.selectorLabelsOverride }}
{{- else -}}
{{ include "gdp.identity" . }}
{{- end -}}
{{- end -}}

{{/* Labels of every object but pods. */}}
{{- define "gdp.labels" -}}
helm.sh/chart: {{ include "gdp.cut" (list 63 (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_")) }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "gdp.identity" . }}
{{- end -}}

{{- define "gdp.serviceAccount" -}}
{{ include "gdp.fullname" . }}-service-account
{{- end -}}

{{- define "gdp.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}
{{- end -}}
