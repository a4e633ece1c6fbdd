{{/* Parts that every pod of the chart has. */}}

{{- define "gdp.pod.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ toYaml . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ toYaml . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gdp.pod.rights" -}}
serviceAccountName: {{ include "gdp.serviceAccount" . | toYaml }}
# Nothing here talks to the API server.
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- .Values.podSecurityContext | default (dict "seccompProfile" (dict "type" "RuntimeDefault")) | toYaml | nindent 2 }}
{{- end -}}

{{- define "gdp.pod.annotations" -}}
{{- $annotations := .Values.podAnnotations | default dict | deepCopy -}}
{{- if and .Values.rolloutOnConfigChange .Values.config.map (not (hasKey $annotations "checksum/config")) -}}
{{- $_ := set $annotations "checksum/config" (toJson .Values.config.map | sha256sum) -}}
{{- end -}}
{{- with $annotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "gdp.resources" -}}
{{- .Values.resources | default (dict
  "requests" (dict "cpu" "50m" "memory" "64Mi")
  "limits" (dict "memory" "128Mi")) | toYaml -}}
{{- end -}}

{{/* A variable whose value is set; nothing for null. Takes the name and the value. */}}
{{- define "gdp.env" -}}
{{- $value := index . 1 -}}
{{- if not (kindIs "invalid" $value) }}
{{- if kindIs "slice" $value }}
{{- $value = join "," $value }}
{{- end }}
- name: {{ index . 0 }}
  value: {{ toString $value | quote }}
{{- end -}}
{{- end -}}
